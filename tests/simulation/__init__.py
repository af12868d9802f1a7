"""Thousands of messages with random fates, in the same ticks of a real loop on a real broker, whose clock and crashes are random too.

`python -m tests.simulation --seed 7` runs one; the same seed gives the same fates, times, faults and crashes.
"""
