"""Benchmarks, which measure the figures in the documentation: `python -m bench publish`, `python -m bench tick`."""
