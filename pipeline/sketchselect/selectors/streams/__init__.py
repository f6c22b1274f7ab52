"""Selection along a stream of rows: decay, windows, timelines."""
