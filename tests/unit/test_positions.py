"""One step of the intake is bounded, and shared fairly."""

from __future__ import annotations

import pytest

from orchestration.kafka.cluster import Partition, Range
from orchestration.loop.positions import SourceOffsets, cut_id, ids_in_force, share


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


def test_a_partition_that_was_cut_short_is_read_under_the_id_that_it_got_last() -> None:
    first = cut_id("wCpcsuYQTe-dBmGjm2_QGA", 9)
    second = cut_id(first, 10)
    assert (first, second) == ("wCpcsuYQTe-dBmGjm2_QGA~9", "wCpcsuYQTe-dBmGjm2_QGA~10")
    positions = {"wCpcsuYQTe-dBmGjm2_QGA/0": 7, f"{second}/0": 4, f"{first}/0": 5, f"{first}/1": 3, "name:a.b/0": 1, "name:c~3/0": 2}
    offsets = SourceOffsets(positions, started=frozenset({"a~b", "~/0"}))
    assert ids_in_force(offsets) == {"wCpcsuYQTe-dBmGjm2_QGA/0": second, "wCpcsuYQTe-dBmGjm2_QGA/1": first, "name:c/0": "name:c~3"}
