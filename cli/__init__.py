"""Package cli of Muster."""
