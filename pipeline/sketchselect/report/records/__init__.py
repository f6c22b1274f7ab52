"""Data of the report page."""
