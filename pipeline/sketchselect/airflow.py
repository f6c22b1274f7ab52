"""The public name of `sketchselect.integrations.airflow`."""

from sketchselect.integrations.airflow import *  # noqa: F403
