"""Package noded.launch of Muster."""
