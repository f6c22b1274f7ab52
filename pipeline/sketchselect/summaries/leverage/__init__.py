"""Ridge leverage of rows: a weighted sample of them, and exact scores."""
