"""When the loop writes its state as a row of `ticks`, and what a start reads from the rows of others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestration.clock import wall_clock
from orchestration.loop.starting_point import read_starting_point
from orchestration.tables.ledgers import Ledgers
from tests.loop.harness import Redrive


def rows(redrive: Redrive) -> int:
    (row,) = redrive.sql("select count(*) as n from ticks")
    return int(row["n"])


def test_an_idle_loop_writes_one_row_when_the_wall_clock_is_set_back(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start looks for earlier sends from the loop time of the last row on, and Kafka has them under the time of the wall clock."""
    redrive.settle()
    before = rows(redrive)
    redrive.loop.tick()
    assert rows(redrive) == before, "an idle tick"
    with monkeypatch.context() as patch:
        patch.setattr(redrive.loop.clock, "_wall", lambda: wall_clock() - timedelta(hours=1))
        for _ in range(3):
            redrive.loop.tick()
        assert rows(redrive) == before + 1
        (row,) = redrive.sql("select * from ticks order by batch desc limit 1")
        assert row["loop_time"] > wall_clock() - timedelta(minutes=5), "loop time goes on"


def test_a_start_has_a_new_generation_though_an_older_loop_wrote_the_last_row(redrive: Redrive) -> None:
    redrive.settle()
    newest = redrive.loop.ledgers.generation
    older = Ledgers(redrive.loop.spark, redrive.loop.schema)
    older.read_end()
    older.generation = newest - 1
    # as a loop does that was frozen between its look at the newest generation and its last row
    state = replace(redrive.loop.state.of_kind("end"), generation=newest - 1)
    older.append("ticks", redrive.loop.stored.row(state), redrive.loop.clock.now())
    try:
        assert read_starting_point(redrive.loop.settings, redrive.loop.spark, redrive.loop.schema).state.generation == newest + 1
    finally:
        redrive.loop.ledgers.read_end()
