"""Package dbd.services of Muster."""
