"""``python -m sketchselect``. The guard matters: worker processes import this module again."""

from sketchselect.cli import main

if __name__ == "__main__":
    main()
