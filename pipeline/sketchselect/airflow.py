"""Public name of `sketchselect.integrations.airflow`."""

from sketchselect.integrations.airflow import *  # noqa: F403
from sketchselect.integrations.airflow import __all__ as __all__
