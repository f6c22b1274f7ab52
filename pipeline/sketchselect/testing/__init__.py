"""Conformance suites for user-defined summaries and readers."""
