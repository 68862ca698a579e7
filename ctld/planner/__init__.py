"""The planner: a child process of the controller that plans the whole queue on its own copy of the state."""
