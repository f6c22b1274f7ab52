"""Matrices in single files and folders of files."""
