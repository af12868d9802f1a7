"""Lets this process have another time zone for a while, as on a host somewhere else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def local_zone(name: str) -> Iterator[None]:
    """What is asked for local time meanwhile answers in this zone. The JVM, once started, keeps its own."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
