"""Package noded.loops of Muster."""
