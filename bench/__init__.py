"""Benchmarks for the figures in the documentation, for example `python -m bench publish`, `python -m bench tick`."""
