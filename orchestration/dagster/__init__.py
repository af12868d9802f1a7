"""The Dagster project: assets with their dependencies, checks, jobs and schedules.

redrive doesn't need it, and it holds no rule: `redrive run` is the loop, which Dagster shows, and can run in shifts. Modules that start
Spark or use Kafka are imported where they are used, so that the definitions load in seconds and without either.
"""
