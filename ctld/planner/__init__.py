"""Package ctld.planner of Muster."""
