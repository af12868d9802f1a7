"""Dead letters that can't be sent as they are: sent with less in them, and the result says what is left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from publisher import destinations, sending
from publisher.contract import RECORDS
from publisher.fitting import exact_size, lightened
from publisher.headers import headers_of
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster
from tests.unit.publisher_kit.rows import outcomes, ready, send, settings_for, stops
from tests.unit.test_publisher_isolation import TOO_LARGE

Header = tuple[str, bytes | None]

# a message's own headers may have the names of any profile
OWN: list[Header] = [("trace", b"t" * 50), ("dlq-reason", b"mine"), ("kafka_dlt-original-offset", None), ("trace", b"")]
IDENTITY: list[Header] = [
    ("redrive-delivery", b"d"),
    ("redrive-due", b"1"),
    ("redrive-attempt", b"5"),
    ("redrive-message-id", b"billing:orders/0/1"),
    ("redrive-original-topic", b"orders"),
    ("redrive-original-partition", b"0"),
    ("redrive-original-offset", b"1"),
    ("redrive-original-timestamp", b"9"),
]
REASONS: list[Header] = [
    ("dlq-reason", b"r" * 200),
    ("dlq-error-class", b"e"),
    ("dlq-original-topic", b"orders"),
    ("dlq-failed-at", b"2026"),
    ("dlq-attempts", b"5"),
    ("redrive-consumer-group", b"billing"),
]
MARK: Header = ("redrive-payload", b"omitted")
NAMES_MARK: Header = ("redrive-headers", b"omitted")
KEY, VALUE = b"k" * 100, b"v" * 1_000


def dead(topic: str = "t", **changes: Any) -> dict[str, Any]:
    headers = [*OWN, *REASONS, *IDENTITY]
    counts = {"own_headers": len(OWN), "reason_headers": len(REASONS)}
    return {"topic": topic, "kind": "dead_letter", "key": KEY, "value": VALUE, "headers": headers, **counts, **changes}


ONLY_IDENTITY: dict[str, Any] = {"own_headers": 0, "reason_headers": 0}


FULL = exact_size(KEY, VALUE, [*OWN, *REASONS, *IDENTITY])
WITHOUT_REASONS = exact_size(KEY, VALUE, [*OWN, *IDENTITY])
WITHOUT_PAYLOAD = exact_size(KEY, None, [*IDENTITY, MARK])
WITHOUT_KEY = exact_size(None, None, [*IDENTITY, MARK])

# The largest record that the topic takes, and what then lies there.
LIMITS: list[tuple[int, str | None, tuple[bytes | None, bytes | None, list[Header]] | None]] = [
    (FULL, None, (KEY, VALUE, [*OWN, *REASONS, *IDENTITY])),
    (FULL - 1, "headers", (KEY, VALUE, [*OWN, *IDENTITY])),
    (WITHOUT_REASONS, "headers", (KEY, VALUE, [*OWN, *IDENTITY])),
    (WITHOUT_REASONS - 1, "payload", (KEY, None, [*IDENTITY, MARK])),
    (WITHOUT_PAYLOAD, "payload", (KEY, None, [*IDENTITY, MARK])),
    (WITHOUT_PAYLOAD - 1, "payload", (None, None, [*IDENTITY, MARK])),
    (WITHOUT_KEY, "payload", (None, None, [*IDENTITY, MARK])),
    (WITHOUT_KEY - 1, None, None),
]


@pytest.mark.parametrize("known", [True, False], ids=["limit known", "limit found out"])
@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize(("limit", "omitted", "lies"), LIMITS, ids=lambda case: str(case) if isinstance(case, int) else "")
def test_as_little_as_possible_is_left_out(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, limit: int, omitted: str | None, lies: Any, known: bool, transactions: bool
) -> None:
    topic = mock_cluster.create("t")
    if known:
        monkeypatch.setattr(destinations, "_limits", lambda *_: {topic: limit})
    else:
        smaller = (size for size in (FULL, WITHOUT_REASONS, WITHOUT_PAYLOAD, WITHOUT_KEY) if size > limit)
        mock_cluster.fail_produce(topic, *(TOO_LARGE for _ in smaller))

    (row,) = send([dead()], settings_for(mock_cluster.bootstrap, transactions=transactions))

    assert (row["outcome"], row["omitted"]) == ("delivered" if lies else "failed", omitted)
    if lies:
        (message,) = mock_cluster.read(topic, row["offset"] + 1)[row["offset"] :]
        assert (message.key(), message.value(), message.headers()) == lies
    else:
        assert (row["error_code"], row["error_kind"], row["offset"]) == (TOO_LARGE, "poison", None)


@pytest.mark.parametrize("known", [True, False], ids=["limit known", "limit found out"])
def test_only_what_is_too_large_goes_with_less_and_the_order_stays(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    topic = mock_cluster.create("t")
    large = {3, 4, 9}
    rows = [dead(value=b"v" * (3_000 if n in large else 10), key=f"k{n}".encode()) for n in range(10)]
    # A retry goes whole or not at all.
    rows[5] = {**rows[5], "kind": "retry", "value": b"v" * 3_000}
    if known:
        monkeypatch.setattr(destinations, "_limits", lambda *_: {topic: 1_500})
    else:
        refuse_large_values(mock_cluster, topic, monkeypatch)

    results = send(rows, settings_for(mock_cluster.bootstrap))

    assert outcomes(results) == {f"d{n}": "failed" if n == 5 else "delivered" for n in range(10)}
    by_id = {row["delivery_id"]: row for row in results}
    assert {n for n in range(10) if by_id[f"d{n}"]["omitted"]} == large
    places = [by_id[f"d{n}"]["offset"] for n in range(10) if n != 5]
    assert places == sorted(places)
    messages = {message.offset(): message for message in mock_cluster.read(topic, 9)}
    for n in range(10):
        if n != 5:
            message = messages[by_id[f"d{n}"]["offset"]]
            assert (message.key(), message.value()) == (f"k{n}".encode(), None if n in large else b"v" * 10)


@pytest.mark.parametrize("name", [None, "a\0b", "\0"])
@pytest.mark.parametrize("transactions", [True, False])
def test_headers_that_kafka_s_client_cannot_carry_are_left_out_of_a_dead_letter_and_of_nothing_else(
    mock_cluster: MockCluster, transactions: bool, name: str | None
) -> None:
    topic = mock_cluster.create("t")
    bad: list[Any] = [OWN[0], (name, b"1"), *OWN[1:], (name, None)]
    row = dead(headers=[*bad, *REASONS, *IDENTITY], own_headers=len(bad))
    rows = [dead(), row, {**row, "kind": "retry"}]

    results = send(rows, settings_for(mock_cluster.bootstrap, transactions=transactions))

    assert outcomes(results) == {"d0": "delivered", "d1": "delivered", "d2": "failed"}
    by_id = {result["delivery_id"]: result for result in results}
    assert [by_id[f"d{n}"]["omitted"] for n in range(3)] == [None, "unsendable_headers", None]
    assert (by_id["d2"]["error_code"], by_id["d2"]["error_kind"]) == (87, "poison")
    whole, lighter = mock_cluster.read(topic, 2)
    assert (whole.key(), whole.value(), whole.headers()) == (KEY, VALUE, [*OWN, *REASONS, *IDENTITY])
    assert (lighter.key(), lighter.value(), lighter.headers()) == (KEY, VALUE, [*OWN, *REASONS, *IDENTITY, NAMES_MARK])


@pytest.mark.parametrize(
    ("limit", "omitted", "lies"),
    [
        (WITHOUT_REASONS + 30, "unsendable_headers+headers", (KEY, VALUE, [*OWN, *IDENTITY, NAMES_MARK])),
        (WITHOUT_PAYLOAD + 30, "payload", (KEY, None, [*IDENTITY, NAMES_MARK, MARK])),
    ],
)
def test_what_remains_may_be_too_large_all_the_same(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, limit: int, omitted: str, lies: Any
) -> None:
    topic = mock_cluster.create("t")
    monkeypatch.setattr(destinations, "_limits", lambda *_: {topic: limit})
    bad: list[Any] = [*OWN, ("\0", b"x" * 2_000)]

    (row,) = send([dead(headers=[*bad, *REASONS, *IDENTITY], own_headers=len(bad))], settings_for(mock_cluster.bootstrap))

    assert (row["outcome"], row["omitted"]) == ("delivered", omitted)
    (message,) = mock_cluster.read(topic, 1)
    assert (message.key(), message.value(), message.headers()) == lies


def test_a_name_that_is_not_utf_8_is_left_out_too() -> None:
    row = ready([dead(headers=[("AA", b"1"), ("B", b"2")], own_headers=2, reason_headers=0)])
    names: list[bytes | None] = [b"\xff\xfe", b"B"]
    values = pc.struct_field(row.column("headers").flatten(), "value")
    raw = pa.Array.from_buffers(pa.string(), 2, pa.array(names, pa.binary()).buffers())
    kind = RECORDS.field("headers").type
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.StructArray.from_arrays([raw, values], fields=list(kind.value_type)))
    row = row.set_column(row.schema.get_field_index("headers"), RECORDS.field("headers"), lists.cast(kind))

    lighter = lightened(row, settings_for("b:9092").trouble(87, "refused"))

    assert lighter is not None
    assert headers_of(lighter) == [[("B", b"2"), NAMES_MARK]]
    assert (lighter.column("own_headers").to_pylist(), lighter.column("omitted").to_pylist()) == ([1], ["unsendable_headers"])


def refuse_large_values(cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the broker refuse each batch with a large value in it."""
    attempt = sending.in_transaction

    def refused(session: Any, rows: Any, *more: Any) -> Any:
        if any(len(value or b"") > 1_500 for value in rows.column("value").to_pylist()):
            cluster.fail_produce(topic, TOO_LARGE)
        return attempt(session, rows, *more)

    monkeypatch.setattr(sending, "in_transaction", refused)


def test_an_unknown_outcome_says_what_was_left_out_too(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = mock_cluster.create("t")
    monkeypatch.setattr(destinations, "_limits", lambda *_: {topic: WITHOUT_PAYLOAD})
    mock_cluster.delay(Api.END_TXN, 30_000)

    results = send([dead()], settings_for(mock_cluster.bootstrap))

    assert (results[0]["outcome"], results[0]["omitted"]) == ("unknown", "payload")


def test_when_the_splits_are_spent_nothing_more_is_left_out(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    mock_cluster.fail_produce(topic, *[TOO_LARGE] * 3)

    results = send([dead()], settings_for(mock_cluster.bootstrap, max_splits=2))

    assert (outcomes(results), stops(results)) == ({}, [(topic, TOO_LARGE, "poison")])


@pytest.mark.parametrize(
    ("what", "row", "code"),
    [
        ("no dead letter", dead(kind="retry"), TOO_LARGE),
        ("neither too large nor of names that can't be carried", dead(), 87),
        ("nothing to leave out", dead(key=None, value=None, headers=[*IDENTITY, MARK], **ONLY_IDENTITY), TOO_LARGE),
        ("nothing that would help", dead(key=b"", value=b"v", headers=IDENTITY, **ONLY_IDENTITY), TOO_LARGE),
        ("nothing at all", dead(key=None, value=None, headers=None, **ONLY_IDENTITY), TOO_LARGE),
    ],
)
def test_what_cannot_be_lightened(what: str, row: dict[str, Any], code: int) -> None:
    assert lightened(ready([row]), settings_for("b:9092").trouble(code, "refused")) is None, what


def test_a_batch_too_large_for_a_segment_is_a_matter_of_size_too() -> None:
    row = lightened(ready([dead()]), settings_for("b:9092").trouble(18, "refused"))

    assert row is not None
    assert row.column("omitted").to_pylist() == ["headers"]


def test_that_a_privacy_left_the_payload_out_stays_said() -> None:
    headers = [*OWN, *REASONS, MARK, *IDENTITY]
    row = dead(key=None, value=None, headers=headers, reason_headers=len(REASONS) + 1)
    left: list[list[Header]] = []
    lighter: Any = ready([row])
    while (lighter := lightened(lighter, settings_for("b:9092").trouble(TOO_LARGE, "refused"))) is not None:
        left.append([(header["key"], header["value"]) for header in lighter.column("headers")[0].as_py()])
    assert left == [[*OWN, *IDENTITY, MARK], [*IDENTITY, MARK]]


def test_rows_as_they_came_have_nothing_left_out() -> None:
    assert ready([dead()] * 2).column("omitted").to_pylist() == [None, None]
