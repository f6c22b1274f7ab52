"""The stages of a job."""
