"""What a decide run looks up: what its inputs name, and little else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestration.tables import decide_statements
from orchestration.tables.decide_statements import filled
from tests.dbt.harness import Home, report


def statements_of_a_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of a decide run, with their bounds."""
    statements: list[str] = []

    def recorded(statement: str, slots: Mapping[str, str]) -> str:
        statements.append(filled(statement, slots))
        return statements[-1]

    monkeypatch.setattr(decide_statements, "filled", recorded)
    home.decide()
    return statements


def test_a_decide_run_looks_up_what_its_inputs_name_and_nothing_between(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are filled unevenly, and one report makes up an offset."""
    places = [(0, 2_000_010), (0, 2_000_015), (1, 31), (1, 44), (1, 4_000_000_000)]
    home.append_reports(*(report("bounded", offset, partition=partition) for partition, offset in places))
    statements = statements_of_a_run(home, monkeypatch)
    topic, partition, offset = ("original_topic", "original_partition", "original_offset")
    bounds = rf"{topic} = 'bounded' and {partition} = ([0-9]+) and {offset} between ([0-9]+) and ([0-9]+)"
    asked = {found for statement in statements for found in re.findall(bounds, statement)}
    assert asked == {("0", "2000010", "2000015"), ("1", "31", "44"), ("1", "4000000000", "4000000000")}


def test_a_decide_run_reads_the_hours_that_its_inputs_point_to_and_none_between(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One report makes up a delivery that was due days ago."""
    hour, dues = timedelta(hours=1), [home.now - timedelta(days=6), home.now - timedelta(minutes=70), home.now - timedelta(minutes=10)]
    said = [report("pointing", offset) for offset in range(len(dues))]
    home.append_reports(
        *(
            replace(
                one,
                headers=(*(one.headers or ()), ("redrive-delivery", b"d"), ("redrive-due", str(round(due.timestamp() * 1000)).encode())),
            )
            for one, due in zip(said, dues, strict=True)
        )
    )
    statements = statements_of_a_run(home, monkeypatch)
    begins = sorted({due.replace(minute=0, second=0, microsecond=0) for due in dues})
    hours = {(round(begin.timestamp()), round((begin + hour).timestamp())) for begin in begins}
    for column in ("due_at", "prior_due"):
        asked = re.compile(rf"\({column} >= timestamp_seconds\(([0-9]+)\) and {column} < timestamp_seconds\(([0-9]+)\)\)")
        assert {(int(begin), int(end)) for statement in statements for begin, end in asked.findall(statement)} == hours
