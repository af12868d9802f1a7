"""The Dagster project: assets with their dependencies, checks, jobs and schedules.

redrive works without it, and it contains no rules: `redrive run` is the loop. Dagster shows the loop, and can run it in shifts. Modules
that start Spark or use Kafka are imported where they are used, so that the definitions load in seconds and without either.
"""
