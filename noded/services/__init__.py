"""Package noded.services of Muster."""
