"""Package ctld.store of Muster."""
