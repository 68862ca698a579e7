"""Package noded.core of Muster."""
