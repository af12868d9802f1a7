"""Dagster's view of the loop: what there is, what depends on what, what must hold, and what may start by itself.

Nothing here is needed to run redrive, and no rule of it is here: `redrive run` is the loop, this shows it and can run it in shifts. What
starts Spark or asks Kafka is imported where it is used, so that the definitions load in seconds and without either.
"""
