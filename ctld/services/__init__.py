"""Package ctld.services of Muster."""
