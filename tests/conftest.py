"""Which tests share a worker: those that share a broker, a loop, or a Spark session, as these are dear to start."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import TimestampType
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# tables of a few rows are read several times as fast without the code that Spark would generate for each query; what runs in a process of
# its own has it, as in production
os.environ.setdefault("REDRIVE_CODEGEN", "false")

# the tests on the broker are two halves, so that each worker can have one
_SHARING = ("tests/dagster/", "tests/dbt/", "tests/loop/test_promise", "tests/loop/")


_from_internal = TimestampType.fromInternal


def _refuse_local_time(self: TimestampType, micros: int) -> Any:
    """What dbt fetches is dbt's business: ours is given numbers."""
    frame = sys._getframe()
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").startswith("dbt."):
            return _from_internal(self, micros)
        frame = frame.f_back
    raise AssertionError("pyspark would make a local time without a zone of a timestamp: collect rows with orchestration.tables.rows")


setattr(TimestampType, TimestampType.fromInternal.__name__, _refuse_local_time)


@pytest.fixture(autouse=True)
def no_log_into_a_closed_stream() -> Iterator[None]:
    """A command that a test calls logs to the standard error of that call: what runs after it would complain of each line."""
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
        root.removeHandler(handler)


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives a worker the tests of a folder that has something to share as a whole, and other tests file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((place for place in _SHARING if file.startswith(place)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    """What pytest-xdist schedules with."""
    return ByFolder(config, log)
