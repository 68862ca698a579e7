"""Package ctld.core of Muster."""
