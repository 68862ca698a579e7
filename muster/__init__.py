"""Package muster of Muster."""
