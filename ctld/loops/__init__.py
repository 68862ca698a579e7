"""Package ctld.loops of Muster."""
