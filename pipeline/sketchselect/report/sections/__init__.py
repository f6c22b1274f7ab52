"""The figures and tables of the report page."""
