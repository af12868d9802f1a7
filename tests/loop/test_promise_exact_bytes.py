"""Keys, values and headers arrive as they came: after a retry, and in the dead letter topic."""

from __future__ import annotations

from tests.loop.harness import Headers, Record, Redrive

RECORDS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"plain", b'{"order": 1}', [("content-type", b"application/json")]),
    (None, b"no key", []),
    (b"", b"", [("empty", b"")]),
    (b"tombstone", None, [("null", None)]),
    (b"\xff\xfe\x00", b"\x00\x80\xff" * 7, [("not-utf-8", b"\xc3\x28\xa0\xa1")]),
    (b"repeated", b"v", [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", None), ("A", b"4")]),
    (b"odd names", b"v", [("", b"an empty name"), ("ünïcödé \U0001f600", b"v"), ("x" * 500, b"long")]),
    (b"megabyte", bytes(range(256)) * 4096, [("h" * 10, b"\x01" * 100_000)]),
]


def content(record: Record) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    return record.key, record.value, record.own_headers


def test_bytes_are_the_same_after_a_retry_and_in_the_dead_letter_topic(redrive: Redrive) -> None:
    redrive.domain("bytes")
    failed = [redrive.fails("bytes.orders", *record) for record in RECORDS]
    wanted = {str(record.offset): content(record) for record in failed}

    retries = redrive.retries("bytes", len(RECORDS))
    assert {retry.header("redrive-original-offset"): content(retry) for retry in retries} == wanted

    for retry in retries:
        redrive.report(retry, error="KeyError")
    dead = redrive.dead("bytes", len(RECORDS))
    assert {letter.header("redrive-original-offset"): content(letter) for letter in dead} == wanted
    assert len(dead) == len(retries) == len(RECORDS)
