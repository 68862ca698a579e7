"""Package dbd of Muster."""
