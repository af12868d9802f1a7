"""The package `reporter` without Kafka: the protocol of sequences, case by case, what a report contains, and the ids of sequences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Message

from orchestration.loop.sequence_feed import DECIDED as WRITTEN
from reporter import PreviousMessageWasRecovered, Report, message_id
from reporter.holds import DECIDED, Holds
from reporter.holds import Sequence as OfRecords
from reporter.reports import Place, header, stack_of
from reporter.sequence_ids import check_place, names_of, sequence_id
from tests.deep_errors import deep_error
from tests.json_ids import JSON_IDS

CASES = json.loads((Path(__file__).parents[2] / "docs" / "sequences.json").read_text(encoding="utf-8"))["cases"]


def _place(text: str) -> Place:
    topic, partition, offset = text.split("/")
    return Place(topic, int(partition), int(offset))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_protocol(case: dict[str, Any]) -> None:
    holds = Holds()
    for number, step in enumerate(case["steps"]):
        sequence = OfRecords("billing", "orders", step.get("partition", 0), step.get("id", "a"))
        match step:
            case {"read": [key, value]}:
                holds.read(key, value)
            case {"failed": place}:
                holds.failed(sequence, _place(place))
            case {"followed": place}:
                holds.followed(sequence, _place(place))
            case {"topic": "created again"}:
                holds.begin_anew()
            case {"revoked": partitions}:
                holds.forget((topic, partition) for topic, partition in partitions)
            case {"covers": ends, "expected": expected}:
                assert holds.covers(ends) == expected, number
            case {"original": _, "processed": processed}:
                assert holds.may_process(sequence, None, is_retry=False) == processed, number
            case {"retry": epoch, "processed": processed}:
                assert holds.may_process(sequence, epoch, is_retry=True) == processed, number
            case _:
                raise AssertionError(step)


def test_the_loop_writes_what_consumers_read() -> None:
    assert WRITTEN == DECIDED


@dataclass
class FakeRecord:
    """As a record of Kafka's client."""

    key_: bytes | None = b"k"
    value_: bytes | None = b"v"
    headers_: Sequence[tuple[str, bytes | None]] | None = (("sequence", b"h1"), ("trace", b"\x00\xff"))

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None if self.headers_ is None else [*self.headers_]

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


def record(**fields: Any) -> Message:
    return cast(Message, FakeRecord(**fields))


def test_a_report_says_what_failed_and_keeps_the_headers_of_the_record() -> None:
    try:
        raise KeyError("amount")
    except KeyError as error:
        headers = Report(record(), error).headers("billing")
    assert headers[:2] == [("sequence", b"h1"), ("trace", b"\x00\xff")]
    said = dict(headers[2:])
    assert said["redrive-error-class"] == b"KeyError"
    assert b"KeyError: 'amount'" in cast(bytes, said["redrive-error-stack"])
    assert (said["redrive-original-topic"], said["redrive-original-partition"], said["redrive-original-offset"]) == (b"orders", b"3", b"17")
    assert said["redrive-consumer-group"] == b"billing"
    assert "redrive-error-kind" not in said


def test_a_record_whose_headers_cannot_be_read_is_reported_without_them(caplog: pytest.LogCaptureFixture) -> None:
    class Foreign(FakeRecord):
        def headers(self) -> list[tuple[str, bytes | None]] | None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    foreign = cast(Message, Foreign())
    headers = Report(foreign, KeyError("amount")).headers("billing")
    assert dict(headers)["redrive-original-offset"] == b"17"
    assert header(foreign, "redrive-sequence-epoch") is None
    assert sequence_id("sequence", foreign) is None
    assert "the headers of orders/3/17 can't be read" in caplog.text


@pytest.mark.parametrize("calls", [1, 10, 100])
def test_a_long_stack_names_every_error_of_the_chain(calls: int) -> None:
    stack = stack_of(deep_error(calls))
    assert len(stack) <= 8_000
    assert [line for line in stack.splitlines() if line.startswith("LookupError")] == [f"LookupError: number {n}" for n in range(3)]
    assert stack.count("Traceback (most recent call last):") == 3


def test_a_stack_that_is_too_long_because_of_its_messages_keeps_both_ends() -> None:
    stack = stack_of(deep_error(1, "x" * 5_000))
    assert len(stack) <= 8_005
    assert stack.startswith("Traceback (most recent call last):")
    assert "\n... xxx" in stack
    assert stack.endswith("x\n")


def test_a_record_that_was_not_tried_is_reported_as_a_follower() -> None:
    report = Report(record(headers_=None), PreviousMessageWasRecovered("an earlier one has failed"))
    said = dict(report.headers("billing"))
    assert report.is_follower
    assert (said["redrive-error-class"], said["redrive-error-kind"]) == (b"PreviousMessageWasRecovered", b"follows")
    assert "redrive-error-stack" not in said


def test_a_record_and_its_retries_have_one_id() -> None:
    assert message_id("billing", record()) == "billing:orders/3/17"
    assert message_id("billing", record(headers_=[("redrive-message-id", b"billing:orders/0/1")])) == "billing:orders/0/1"


@pytest.mark.parametrize(
    ("place", "fields", "expected"),
    [
        ("key", {"key_": "Ä1".encode()}, "Ä1"),
        ("key", {"key_": b"\xff\x01"}, "FF01"),
        ("key", {"key_": b""}, None),
        ("key", {"key_": None}, None),
        ("key", {"key_": b"x" * 256}, "x" * 256),
        ("sequence", {}, "h1"),
        ("absent", {}, None),
        ("$.order.id", {"value_": b'{"order": {"id": 17}}'}, "17"),
        ("$.order.id", {"value_": b'{"order": {"id": "17"}}'}, "17"),
        ("$.order.id", {"value_": b'{"order": null}'}, None),
        ("$.order.id", {"value_": b"no json"}, None),
        ("$.order.id", {"value_": None}, None),
        ("$['order'].id", {"value_": b'{"order": {"id": 17}}'}, "17"),
        ("$.lines[1]['the id']", {"value_": b'{"lines": [{}, {"the id": "b"}]}'}, "b"),
        ("$.lines[1]", {"value_": b'{"lines": "text"}'}, None),
        ("$.lines[1]", {"value_": b'{"lines": ["a"]}'}, None),
        ("$[0]", {"value_": b'["a"]'}, "a"),
        ("$.order.id", {"value_": b'{"order": {"text": "a\tb", "id": 17}}'}, "17"),
        *(("$.id", {"value_": value.encode()}, expected) for value, expected in JSON_IDS),
        ("$.id", {"value_": '{"id": "A"}'.encode("utf-16")}, None),
    ],
)
def test_a_sequence_is_named_as_in_redrive(place: str, fields: dict[str, Any], expected: str | None) -> None:
    """tests/dbt/test_sequences.py has the same for SQL."""
    assert sequence_id(place, record(**fields)) == expected


@pytest.mark.parametrize("place", ["$", "$.", "$order", "$.a..b", "$.a[*].b", "$.*", "$['a]", "$.a[-1]"])
def test_a_path_that_leads_nowhere_is_refused_at_once(place: str) -> None:
    with pytest.raises(ValueError, match="is no path to one place"):
        check_place(place)


def test_redrive_may_cut_an_id_or_keep_its_hash_only() -> None:
    """tests/dbt/test_sequences.py has the same for SQL."""
    long = "x" * 300
    digest = hashlib.sha256(long.encode()).hexdigest()
    assert names_of(long) == (f"{'x' * 243}~{digest[:12]}", digest)
    assert names_of("customer 17") == ("customer 17", hashlib.sha256(b"customer 17").hexdigest())
