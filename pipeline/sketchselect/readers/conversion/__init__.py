"""Conversion of other formats to Zarr stores."""
