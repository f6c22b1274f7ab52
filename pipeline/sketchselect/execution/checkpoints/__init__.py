"""Checkpoints of a pass: names, files, what decides the bits."""
