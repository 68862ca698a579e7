"""`muster sim`: a recorded workload replayed in virtual time on the controller's own core."""
