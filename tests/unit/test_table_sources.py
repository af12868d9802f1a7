"""Which rows of a table are read next."""

import pytest

from orchestration.loop.table_sources import Part, Snapshot, next_part
from orchestration.rules.seed_columns import COLUMNS

PLACES = 2**31


def snapshot(sequence: int, rows: int | None, *, parent: int | None = 1) -> Snapshot:
    return Snapshot(sequence * 100, parent, sequence, "append" if rows is not None else "replace", rows)


FIRST = snapshot(1, 5, parent=None)
SMALL, MOVED, LARGE = snapshot(2, 3), snapshot(3, None), snapshot(4, 20)


@pytest.mark.parametrize(
    ("snapshots", "offset", "expected"),
    [
        pytest.param([], 0, None, id="nothing is there"),
        pytest.param([FIRST, SMALL], 0, Part(None, FIRST, 0, 5), id="the first of a table is read alone"),
        pytest.param([SMALL, MOVED, snapshot(5, 4)], 2 * PLACES, Part(1, snapshot(5, 4), 0, 7), id="small ones are read as one"),
        pytest.param([SMALL, MOVED, LARGE], 2 * PLACES, Part(1, SMALL, 0, 3), id="what is over the limit waits"),
        pytest.param([LARGE], 4 * PLACES, Part(1, LARGE, 0, 10), id="of a large one a part"),
        pytest.param([LARGE, SMALL], 4 * PLACES + 10, Part(1, LARGE, 10, 20), id="and then the rest"),
        pytest.param([LARGE], 4 * PLACES + 20, None, id="nothing is left"),
        pytest.param([SMALL], 2 * PLACES + 7, None, id="read as the last of several, which had more rows"),
        pytest.param([SMALL, LARGE], 2 * PLACES + 7, Part(1, LARGE, 0, 10), id="after several"),
        pytest.param([MOVED], 3 * PLACES, None, id="nothing was appended"),
        pytest.param([snapshot(2, 0), MOVED], 2 * PLACES, None, id="an append of nothing"),
    ],
)
def test_next_part(snapshots: list[Snapshot], offset: int, expected: Part | None) -> None:
    assert next_part(snapshots, offset, 10) == expected


def test_however_small_the_steps_every_row_is_read_once() -> None:
    snapshots = [FIRST, SMALL, MOVED, LARGE, snapshot(5, 0), snapshot(6, 1), snapshot(7, 1), snapshot(8, 13)]
    for limit in (1, 2, 3, 7, 10, 1000):
        offset, read = 0, 0
        while (part := next_part([one for one in snapshots if one.sequence >= offset // PLACES], offset, limit)) is not None:
            assert part.end - part.begin <= limit
            read += part.end - part.begin
            assert part.next_offset > offset
            offset = part.next_offset
        assert read == 43


@pytest.mark.parametrize(
    ("cell", "is_allowed"),
    [("table:quarantine.orders", True), ("table:lake.quarantine.orders", True), ("table:", False), ("table:orders; drop", False)],
)
def test_the_cell_of_a_table(cell: str, is_allowed: bool) -> None:
    assert (COLUMNS["sources"]["topic"](cell) is None) == is_allowed
