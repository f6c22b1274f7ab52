"""The exact lasso path by homotopy."""
