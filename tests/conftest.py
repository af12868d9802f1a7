"""Tests that share a broker, a loop or a Spark session run in the same worker, as these are expensive to start."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import TimestampType
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from orchestration.files import copy_if_there
from orchestration.tables.dbt import Dbt
from tests.sessions import LARGE_PAGES

# without Spark's code generation, queries of small tables are several times as fast; processes that tests start use it, as in production
os.environ.setdefault("REDRIVE_CODEGEN", "false")
# one Spark serves many tests, and keeps the plans of all their statements: with less it spends minutes collecting garbage
os.environ.setdefault("REDRIVE_SPARK_MEMORY", "3g")
# the JVM keeps 240 MB of compiled code by default, half of it for code of its first compiler, which was nearly full after five minutes of
# tests. When it is full, it throws code away that it needs again.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(("-XX:ReservedCodeCacheSize=512m", *LARGE_PAGES)))

# These run in this order, and before all others: they are the longest. Those before tests/loop stop the worker's Spark session, which the
# loop of tests/loop has until the end.
_FIRST = ("tests/dbt/", "tests/dagster/", "tests/simulation/", "tests/kills/", "tests/loop/test_security", "tests/loop/")

# What has the same name here runs in the same worker. Those of `homes` make a home each. While one worker has the tests of tables, they run
# in the other one before tests/loop, whose home is then made by a JVM that has compiled most of the code for that.
_SHARING = {
    "tests/dbt/": "tables",
    "tests/dagster/": "tables",
    "tests/simulation/": "homes",
    "tests/kills/": "homes",
    "tests/loop/test_security": "homes",
    "tests/loop/test_promise": "promises",
    "tests/loop/": "loop",
}


_from_internal = TimestampType.fromInternal


def _refuse_local_time(self: TimestampType, micros: int) -> Any:
    """Refuses a conversion to local time, except in dbt's code: our code must read times as numbers."""
    frame = sys._getframe()
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").startswith("dbt."):
            return _from_internal(self, micros)
        frame = frame.f_back
    raise AssertionError("pyspark would make a local time without a zone of a timestamp: collect rows with orchestration.tables.rows")


setattr(TimestampType, TimestampType.fromInternal.__name__, _refuse_local_time)


@pytest.fixture(scope="session", autouse=True)
def parsed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gives each new home, of all workers, what dbt has parsed for the first one: parsing all takes 14 s of a processor.

    dbt compares it with the files, the variables and the environment, and parses again what differs.
    """
    base = tmp_path_factory.getbasetemp()
    kept = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "partial_parse.msgpack"
    runner = Dbt._runner

    def with_parsed(self: Dbt) -> Any:
        own = (self.writes_to or self.settings.home) / "dbt" / kept.name
        if not own.exists():
            copy_if_there(kept, own.parent)
        made = runner(self)
        if own.exists() and not kept.exists():
            # complete at once: the other worker may look for it
            part = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(own, part)
            part.replace(kept)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dbt, Dbt._runner.__name__, with_parsed)
        yield


@pytest.fixture(autouse=True)
def no_log_into_a_closed_stream() -> Iterator[None]:
    """Removes the log handler of a command that a test has called: it writes to a stream that is closed after the test."""
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
        root.removeHandler(handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves what must come first to the beginning."""
    items.sort(key=lambda item: next((number for number, place in enumerate(_FIRST) if item.nodeid.startswith(place)), len(_FIRST)))


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Assigns all tests that have the same name in _SHARING to one worker, and other tests file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((name for place, name in _SHARING.items() if file.startswith(place)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    """The scheduler for pytest-xdist."""
    return ByFolder(config, log)
