"""The graph of a pass: tree, tasks, inputs."""
