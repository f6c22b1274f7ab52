"""Our side and the floor of the table's cases for asv, which keeps their history.

`asv run --config tests/benchmarks/asv.conf.json`; small sizes with SKETCHSELECT_SMALL=1.
"""
