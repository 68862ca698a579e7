"""Package ctld of Muster."""
