"""One step of the intake is bounded, and shared fairly."""

from __future__ import annotations

import pytest

from orchestration.cluster import Partition
from orchestration.positions import Range, share


def ranges(**available: list[int]) -> list[Range]:
    return [
        Range(source, Partition(source, f"id-{source}", number), 100, 100 + rows)
        for source, partitions in available.items()
        for number, rows in enumerate(partitions)
    ]


@pytest.mark.parametrize(
    ("available", "limit", "taken"),
    [
        ({"a": [5], "b": [3]}, 100, {"a": [5], "b": [3]}),
        ({"noisy": [1000], "quiet": [3]}, 100, {"noisy": [97], "quiet": [3]}),
        ({"a": [1000], "b": [1000]}, 100, {"a": [50], "b": [50]}),
        ({"a": [1000, 1000], "b": [1000]}, 100, {"a": [25, 25], "b": [50]}),
        ({"a": [1000, 2]}, 10, {"a": [8, 2]}),
        ({"a": [0]}, 10, {}),
        ({}, 10, {}),
    ],
)
def test_a_step_is_shared_fairly(available: dict[str, list[int]], limit: int, taken: dict[str, list[int]]) -> None:
    shared = share(ranges(**available), limit)
    rows: dict[str, list[int]] = {}
    for part in sorted(shared, key=lambda part: (part.source, part.partition.number)):
        assert part.begin == 100
        rows.setdefault(part.source, []).append(part.rows)
    assert rows == taken


def test_a_limit_smaller_than_the_number_of_sources_starves_none_for_ever() -> None:
    shared = share(ranges(a=[10], b=[10], c=[10]), 2)
    assert sum(part.rows for part in shared) in (2, 3)
    assert share(ranges(c=[10]), 2)[0].rows == 2
