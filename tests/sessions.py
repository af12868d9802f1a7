"""The Spark session of a test process, which has one at a time."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

LARGE_PAGES = ("-XX:+UseTransparentHugePages",) if sys.platform == "linux" else ()
"""With large pages of memory, decide runs need a sixth less of the processors. JVMs of other systems refuse to start with this option."""


def stop_session() -> None:
    """Stops the session that other tests have left, if any: it has the catalog of their tables, and would be used as it is."""
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
