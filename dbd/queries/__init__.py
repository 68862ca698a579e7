"""Package dbd.queries of Muster."""
