"""The output folder of a run and the files in it."""
