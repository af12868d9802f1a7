"""The headers that redrive adds to what it sends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher import READY
from publisher.contract import RECORDS
from publisher.ready import complete

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DUE = EPOCH + timedelta(milliseconds=1_767_323_045_678)

ROW: dict[str, Any] = {
    "delivery_id": "billing:orders/3/17#0123456789ab",
    "due_at": DUE,
    "kind": "retry",
    "message_id": "billing:orders/3/17",
    "topic": "orders-billing-retry",
    "attempt": 2,
    "original_topic": "orders",
    "original_partition": 3,
    "original_offset": 17,
    "original_timestamp": EPOCH + timedelta(milliseconds=1_767_323_000_001),
}

OURS = [
    ("redrive-delivery", b"billing:orders/3/17#0123456789ab"),
    ("redrive-due", b"1767323045678"),
    ("redrive-attempt", b"2"),
    ("redrive-message-id", b"billing:orders/3/17"),
    ("redrive-original-topic", b"orders"),
    ("redrive-original-partition", b"3"),
    ("redrive-original-offset", b"17"),
    ("redrive-original-timestamp", b"1767323000001"),
]

Headers = list[tuple[str, bytes | None]]


def headers_of(rows: list[dict[str, Any]], start: int = 0) -> list[Headers]:
    batch = complete(pa.RecordBatch.from_pylist(rows, schema=READY).slice(start))
    assert batch.schema == RECORDS
    return [[(header["key"], header["value"]) for header in row] for row in batch.column("headers").to_pylist()]


def lists(headers: Headers | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": name, "value": value} for name, value in headers]


def test_a_retry_says_which_delivery_of_which_message_it_is() -> None:
    assert headers_of([ROW]) == [OURS]


def test_what_is_not_known_is_left_out() -> None:
    unknown = ("original_timestamp", "original_partition")
    row = {**ROW, **dict.fromkeys(unknown)}
    names = [f"redrive-{name.replace('_', '-')}" for name in unknown]
    assert headers_of([row, ROW]) == [[header for header in OURS if header[0] not in names], OURS]


def test_the_messages_own_come_first_then_why_it_died() -> None:
    own: Headers = [("b", b"1"), ("a", None), ("b", b""), ("redrive-due", b"mine")]
    died: Headers = [("dlq-reason", b"boom")]
    row = {**ROW, "headers": lists(own), "dead_letter_headers": lists(died)}
    assert headers_of([ROW, row]) == [OURS, [*own, *died, *OURS]]


def test_no_rows_have_no_headers() -> None:
    assert headers_of([]) == []


_HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=4)
_ROWS = st.lists(st.tuples(_HEADERS, _HEADERS, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)), min_size=1, max_size=6)


@given(rows=_ROWS, data=st.data())
@settings(max_examples=100, deadline=None)
def test_each_row_gets_its_own_headers_whatever_the_others_have(rows: list[tuple[Any, Any, Any, Any]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    made = headers_of(
        [
            {
                **ROW,
                "headers": lists(own),
                "dead_letter_headers": lists(died),
                "original_partition": partition,
                "original_offset": offset,
            }
            for own, died, partition, offset in rows
        ],
        start,
    )
    for (own, died, partition, offset), headers in zip(rows[start:], made, strict=True):
        numbers = {"redrive-original-partition": partition, "redrive-original-offset": offset}
        ours = [
            (name, value if name not in numbers else str(numbers[name]).encode())
            for name, value in OURS
            if numbers.get(name, value) is not None
        ]
        assert headers == [*(own or []), *(died or []), *ours]
