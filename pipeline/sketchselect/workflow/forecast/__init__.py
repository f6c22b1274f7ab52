"""The forecast of a job: what it will read, need and take."""
