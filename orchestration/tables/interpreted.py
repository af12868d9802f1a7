"""Statements without generated code: for those that Spark would take longer to compile than to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from pyspark.sql import SparkSession

# Spark compiles the code of a statement in its first run, and again if a literal in it has changed; the JVM then interprets it until it
# has run a few thousand times. What reads few rows takes longer to compile than to run.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_CODEGEN = "REDRIVE_CODEGEN"

# Up to here, generated code is no quicker. A decide run of 3,000 takes as long with it, one of 25,000 takes 6.0 s instead of 8.5 s; a
# publish step of 10,000 rows takes 1.9 s with it, and 1.7 s without.
FEW_INPUTS = 5_000
FEW_ROWS = 20_000


def interpreted(spark: SparkSession) -> AbstractContextManager[None]:
    """Runs statements without generated code. Queries that read millions of rows are slower this way."""
    return _with(spark, _INTERPRETED)


def interpreted_if_few(spark: SparkSession, rows: int, few: int) -> AbstractContextManager[None]:
    """Runs statements that read about this many rows without generated code if these are few, and with it if not."""
    return _with(spark, _INTERPRETED if rows <= few else _GENERATED)


@contextmanager
def dbt_interpreted(spark: SparkSession) -> Iterator[None]:
    """As `interpreted`, for what dbt runs: it resets the session to profiles.yml before each statement, which reads this variable.

    The project must be parsed already: if a variable that the profile reads has changed, dbt parses all of it again.
    """
    environment = os.environ.get(_CODEGEN)
    try:
        os.environ[_CODEGEN] = "false"
        with interpreted(spark):
            yield
    finally:
        os.environ.pop(_CODEGEN)
        if environment is not None:
            os.environ[_CODEGEN] = environment


@contextmanager
def _with(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
