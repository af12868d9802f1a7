"""Statements without generated code: for those that Spark would take longer to compile than to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

# The statements of each decide run have other literals, so Spark would generate, compile and warm up their code anew, for a few
# thousand rows. Interpreted, 50 reports take 3 s of CPU instead of 6 s, and 5,000 take 4 s instead of 7 s.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_CODEGEN = "REDRIVE_CODEGEN"

# Up to here, a publish step is quicker without generated code: 1,000 rows take 1.4 s instead of 1.6 s, 10,000 rows 1.7 s instead of 1.9 s.
_FEW_ROWS = 20_000


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Runs statements without generated code. Queries that read millions of rows are slower this way.

    The environment variable is for dbt, which resets the session to profiles.yml before each statement: profiles.yml reads the variable.
    """
    before = {name: str(spark.conf.get(name)) for name in _INTERPRETED}
    environment = os.environ.get(_CODEGEN)
    try:
        os.environ[_CODEGEN] = "false"
        for name, value in _INTERPRETED.items():
            spark.conf.set(name, value)
        yield
    finally:
        os.environ.pop(_CODEGEN)
        if environment is not None:
            os.environ[_CODEGEN] = environment
        for name, value in before.items():
            spark.conf.set(name, value)


def interpreted_if_few(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """Runs statements that read about this many rows without generated code, if that is quicker."""
    return interpreted(spark) if rows <= _FEW_ROWS else nullcontext()
