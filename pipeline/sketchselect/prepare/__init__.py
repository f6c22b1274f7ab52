"""Per-block transforms of rows, named in a job file: pure, local to a row, so they commute with any chunking."""

from sketchselect.prepare.rows import ROW_STEPS, apply, check_steps

__all__ = ["ROW_STEPS", "apply", "check_steps"]
