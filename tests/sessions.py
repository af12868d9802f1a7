"""The Spark session of a test process, which has one at a time."""

from __future__ import annotations

from pyspark.sql import SparkSession


def stop_session() -> None:
    """Stops the session that other tests have left, if any: it has the catalog of their tables, and would be used as it is."""
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
