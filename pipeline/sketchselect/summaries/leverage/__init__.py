"""Ridge leverage of rows: weighted samples and exact scores."""
