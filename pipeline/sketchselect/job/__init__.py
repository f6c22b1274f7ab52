"""The job file: schema, loading, checks, messages."""
