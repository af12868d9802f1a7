"""The figures that the documentation states, one command each: `python -m bench publish`, `python -m bench tick`."""
