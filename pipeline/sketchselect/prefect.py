"""Public name of `sketchselect.integrations.prefect`."""

from sketchselect.integrations.prefect import *  # noqa: F403
from sketchselect.integrations.prefect import __all__ as __all__
