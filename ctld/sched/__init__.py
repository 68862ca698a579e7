"""Package ctld.sched of Muster."""
