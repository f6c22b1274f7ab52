"""The public name of `sketchselect.integrations.prefect`."""

from sketchselect.integrations.prefect import *  # noqa: F403
