"""Package noded.gpu of Muster."""
