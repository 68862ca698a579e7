"""What others call on this agent: people on the local socket, other agents for step input and output."""
