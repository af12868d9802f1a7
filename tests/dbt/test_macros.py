"""The macros as expressions: tables of cases, each a value that goes in and what must come out, in one statement.

What a macro does to whole tables is tested where it is used, in test_decide_cases.py.
"""

from __future__ import annotations

import pytest

from tests.dbt.harness import Home
from tests.dbt.macro_cases import BOUNDS, CASES, CONTENTS, call, content_hash
from tests.json_ids import JSON_IDS

BETWEEN = "\n/* next */\n"


@pytest.fixture(scope="module")
def values(home: Home) -> list[object]:
    """The values of all expressions, compiled and read in one go."""
    compiled = home.compiled(BETWEEN.join(case.expression for case in CASES)).split(BETWEEN)
    return list(home.spark.sql(f"select {', '.join(compiled)}").collect()[0])


@pytest.mark.parametrize("place", range(len(CASES)), ids=[f"{case.macro}-{place}" for place, case in enumerate(CASES)])
def test_what_a_macro_says(place: int, values: list[object]) -> None:
    case = CASES[place]
    assert values[place] == case.value, f"{case}"


def test_an_id_in_a_payload_is_what_a_reporter_takes_for_it(home: Home) -> None:
    payloads = ", ".join(f"(unhex('{value.encode().hex()}'), '$.id')" for value, _ in JSON_IDS)
    sequence = call(
        "sequence_id", "place", "cast(null as binary)", "value", "cast(array() as array<struct<key: string, value: binary>>)", "false"
    )
    found = home.spark.sql(f"select {home.compiled(sequence)} as found from values {payloads} as payloads (value, place)").collect()
    assert [row["found"] for row in found] == [expected for _, expected in JSON_IDS]


def test_every_content_has_a_hash_of_its_own() -> None:
    assert len({content_hash(*content) for content in CONTENTS}) == len(CONTENTS)


def test_a_condition_on_offsets_holds_within_the_spans(home: Home) -> None:
    conditions = home.compiled(
        BETWEEN.join(
            call(
                "condition_of_spans",
                f"cast(array({', '.join(spans)}) as array<struct<topic: string, partition: int, first: bigint, last: bigint>>)",
                prefix,
            )
            for _, _, _, spans, _ in BOUNDS
            for prefix in ("", "original_")
        )
    ).split(BETWEEN)
    texts = list(home.spark.sql(f"select {', '.join(conditions)}").collect()[0])
    assert "true" not in texts
    read = [
        f"(select {condition} from values ('{topic}', {partition}, {offset}) as record ({prefix}topic, {prefix}partition, {prefix}offset))"
        for (topic, partition, offset, _, _), *pair in zip(BOUNDS, texts[::2], texts[1::2], strict=True)
        for prefix, condition in zip(("", "original_"), pair, strict=True)
    ]
    found = list(home.spark.sql(f"select {', '.join(read)}").collect()[0])
    assert found == [expected for *_, expected in BOUNDS for _ in range(2)]
