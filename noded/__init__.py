"""Package noded of Muster."""
