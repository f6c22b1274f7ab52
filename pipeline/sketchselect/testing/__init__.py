"""Conformance suites to test one's own summaries and readers with: laws, nasty inputs."""
