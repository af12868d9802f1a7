"""Rows of `ready` on their way to a transaction: types, loads, sizes, partitions, sizes of batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.contract import READY, RECORDS
from publisher.destinations import Destination
from publisher.fitting import by_batch_size, exact_size, misfits, upper_bounds, with_partitions
from publisher.headers import headers_of, unsendable
from publisher.ready import as_records, loads
from tests.unit.publisher_kit.rows import ready, settings_for


def test_the_view_has_the_columns_of_the_contract_and_says_which_are_not_in_it(pytestconfig: pytest.Config) -> None:
    path = pytestconfig.rootpath / "models" / "retry" / "5_send" / "ready.yml"
    (model,) = yaml.safe_load(path.read_text(encoding="utf-8"))["models"]
    columns = [column["name"] for column in model["columns"]]
    others = model["description"].partition("measures by them:")[2].strip(" .\n").split(", ")
    assert sorted([*READY.names, *others]) == sorted(columns)


def test_columns_are_chosen_by_name_and_cast() -> None:
    batch = ready([{"headers": [("a", b"1")], "topic": "t"}])
    large = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    other = {
        "headers": batch["headers"].cast(large),
        "extra": pa.array([1]),
        **{name: batch[name] for name in reversed(RECORDS.names) if name not in ("headers", "due_at")},
        "due_at": batch["due_at"].cast(pa.timestamp("us", tz="Europe/Berlin")),
    }

    assert as_records(pa.RecordBatch.from_pydict(other)).equals(batch)


@given(
    batches=st.lists(st.lists(st.integers(0, 300), max_size=12), max_size=6),
    max_rows=st.integers(1, 10),
    max_bytes=st.integers(1, 1_000),
)
@settings(max_examples=100, deadline=None)
def test_loads_keep_every_row_in_order_and_within_the_bounds(batches: list[list[int]], max_rows: int, max_bytes: int) -> None:
    rows = [ready({"topic": "t", "key": None, "value": b"x" * size} for size in batch) for batch in batches]

    made = list(loads(rows, max_rows, max_bytes))

    assert [len(v) for load in made for v in load["value"].to_pylist()] == [size for batch in batches for size in batch]
    for load in made:
        assert 1 <= load.num_rows <= max_rows
        assert load.num_rows == 1 or upper_bounds(load).sum() <= max_bytes


def test_loads_are_as_few_as_the_bounds_allow() -> None:
    rows = ready({"topic": "t"} for _ in range(100))

    assert [load.num_rows for load in loads([rows.slice(0, 7), rows.slice(7)], 40, 10**9)] == [40, 40, 20]


@pytest.mark.parametrize(
    ("key", "value", "headers", "size"),
    [
        # 61 for the batch; length, attributes, timestamp, offset, key length, value length, number of headers: 7.
        (None, None, [], 61 + 7),
        (b"", b"", [], 61 + 7),
        (b"k", b"v", [], 61 + 7 + 2),
        (b"k", b"v", [("ab", b"c"), ("d", None)], 61 + 7 + 2 + (2 + 2 + 1) + (2 + 1)),
        # Measured: with max.message.bytes = 2000, Kafka 4.1 takes this and refuses one byte more.
        (b"k0", b"x" * 1928, [], 2000),
    ],
)
def test_a_lone_record_has_this_size(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], size: int) -> None:
    assert exact_size(key, value, headers) == size


_BYTES = st.none() | st.integers(0, 20_000).map(bytes)


@given(st.lists(st.tuples(_BYTES, _BYTES, st.none() | st.lists(st.tuples(st.text(max_size=90), _BYTES))), max_size=5))
@settings(max_examples=100, deadline=None)
def test_the_upper_bound_of_a_size_is_one(rows: list[tuple[Any, Any, Any]]) -> None:
    clean = [
        (key, value, None if headers is None else [(name.replace("\0", ""), content) for name, content in headers])
        for key, value, headers in rows
    ]
    batch = ready({"topic": "t", "key": key, "value": value, "headers": headers} for key, value, headers in clean)

    exact = [exact_size(key, value, headers or []) for key, value, headers in clean]

    assert all(bound >= size for bound, size in zip(upper_bounds(batch).tolist(), exact, strict=True))


def test_sizes_of_a_slice_are_the_slice_s() -> None:
    headers: list[Any] = [[("a", b"0" * 50)], None, [], [("ümläut", b"1"), ("b", None)], [("", b"")], [("c", b"x" * 300)]]
    batch = ready({"topic": "t", "key": b"k" * n, "value": None if n % 2 else b"v" * 10 * n, "headers": h} for n, h in enumerate(headers))
    joined = pa.Table.from_batches([batch.slice(2), batch.slice(1, 4)]).combine_chunks().to_batches()[0]

    alone = [upper_bounds(batch.slice(n, 1)).tolist()[0] for n in range(6)]

    assert upper_bounds(batch).tolist() == alone
    assert upper_bounds(batch.slice(1, 4)).tolist() == alone[1:5]
    assert upper_bounds(joined.slice(1)).tolist() == [*alone[3:], *alone[1:5]]
    assert upper_bounds(batch.slice(6)).tolist() == []


def test_headers_of_a_slice_are_the_slice_s() -> None:
    all_headers = [None, [("a", b"0")], [], [("b", b"1"), ("b", None)], [("c", b"")]]
    batch = ready({"topic": "t", "headers": headers} for headers in all_headers)

    assert headers_of(batch.slice(1, 3)) == [[("a", b"0")], None, [("b", b"1"), ("b", None)]]


def test_header_names_that_would_not_arrive_are_found() -> None:
    names: list[bytes | None] = [b"ok", b"\xff", b"a\0b", None, "ümläut".encode()]
    struct = pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), len(names), pa.array(names, pa.binary()).buffers()), pa.nulls(5, pa.binary())],
        fields=list(RECORDS.field("headers").type.value_type),
    )
    batch = ready({"topic": "t"} for _ in range(4))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 4, 5], pa.int32()), struct)
    batch = batch.set_column(batch.schema.get_field_index("headers"), RECORDS.field("headers"), lists.cast(RECORDS.field("headers").type))

    assert unsendable(batch) == [0, 1, 2]
    assert unsendable(batch.slice(3)) == []
    assert unsendable(batch.slice(1, 2)) == [0, 1]


@pytest.mark.parametrize("bad", [None, "a\0b"])
def test_a_single_bad_header_name_is_found_wherever_it_is(bad: str | None) -> None:
    names: list[str | None] = ["plain", "plain", bad]
    batch = ready({"topic": "t", "headers": [(name, b"")]} for name in names)

    assert unsendable(batch) == [2]
    assert unsendable(batch.slice(2)) == [0]
    assert unsendable(batch.slice(0, 2)) == []


@pytest.mark.parametrize(
    ("limit", "kafka", "refused"),
    [
        (1_000, {}, [1]),
        (None, {}, []),
        # What compression saves only the broker sees.
        (1_000, {"compression.type": "lz4"}, []),
        (1_000, {"compression.codec": "none"}, [1]),
        # The client's own limit is certain, whatever the topic allows.
        (10_000, {"message.max.bytes": "1000"}, [1]),
        (None, {"message.max.bytes": "1000", "compression.type": "lz4"}, [1]),
    ],
)
def test_records_that_are_certain_to_be_refused_are_known_before(limit: int | None, kafka: dict[str, str], refused: list[int]) -> None:
    rows = ready([{"topic": "t", "value": b"x" * size} for size in (900, 1_100, 0)])
    destinations = {"t": Destination("t", partitions=1, max_message_bytes=limit)}

    found = misfits(rows, destinations, settings_for("b:9092", kafka=kafka))

    assert sorted(found) == refused
    assert {trouble.error.code for trouble in found.values()} <= {10}


def test_only_partitions_that_a_topic_has_are_kept() -> None:
    wanted = [("a", 0), ("a", 1), ("a", 2), ("a", -1), ("a", None), ("b", 2), ("b", 3)]
    destinations = {"a": Destination("a", 2, None), "b": Destination("b", 3, None)}

    rows = with_partitions(ready({"topic": topic, "partition": partition} for topic, partition in wanted), destinations)

    assert rows["partition"].to_pylist() == [0, 1, None, None, None, 2, None]
    assert rows["partition"].type == pa.int32()


@pytest.mark.parametrize(
    ("limits", "kafka", "sizes"),
    [
        ({"a": None, "b": 1_048_588, "c": 1_000_000}, {}, {1_000_000: ["a", "b", "c"]}),
        ({"a": 999_999, "b": 600_000, "c": 524_288}, {}, {524_288: ["a", "b", "c"]}),
        ({"a": 2_000, "b": 1_048_588}, {}, {1_024: ["a"], 1_000_000: ["b"]}),
        ({"a": 1_048_588, "b": 70_000}, {"batch.size": "50000"}, {50_000: ["a", "b"]}),
        ({"a": 1}, {}, {1: ["a"]}),
    ],
)
def test_no_batch_is_larger_than_its_topic_takes(limits: dict[str, int | None], kafka: dict[str, str], sizes: dict[int, list[str]]) -> None:
    destinations = {topic: Destination(topic, 1, limit) for topic, limit in limits.items()}

    assert by_batch_size(destinations, settings_for("b:9092", kafka=kafka)) == sizes
