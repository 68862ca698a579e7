"""Package noded.cgroup of Muster."""
