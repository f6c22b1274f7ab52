"""Figures and tables of the report page."""
