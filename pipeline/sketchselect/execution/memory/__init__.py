"""Memory that a pass will need, and memory of processes."""
