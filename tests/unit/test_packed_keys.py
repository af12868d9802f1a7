"""The keys of uForwarder's records, against messages that an encoder of the test's own has written."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orchestration.loop.packed_keys import unpack


def varint(number: int) -> bytes:
    """A number as Protocol Buffers writes it: negative ones as 64 bits of two's complement."""
    left = number % (1 << 64)
    out = bytearray()
    while left > 127:
        out.append(left % 128 + 128)
        left //= 128
    return bytes([*out, left])


def message(**fields: Any) -> bytes:
    """`n1=5` is field 1 with the number 5, `b2=b"x"` field 2 with bytes; in the given order."""
    parts = []
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            parts.append(varint(number * 8) + varint(value))
        else:
            parts.append(varint(number * 8 + 2) + varint(len(value)) + value)
    return b"".join(parts)


WHOLE = message(n1=3, b2=b"orders", n3=7, n4=2**40 + 17, n5=1_772_366_000_123_456_789, b6=b"\x00\xffkey", n7=2)


def test_what_the_key_says() -> None:
    assert unpack(WHOLE) == (
        b"\x00\xffkey",
        [
            ("uforwarder-topic", b"orders"),
            ("uforwarder-retry-count", b"3"),
            ("uforwarder-partition", b"7"),
            ("uforwarder-offset", b"1099511627793"),
            ("uforwarder-timestamp", b"1772366000123"),
            ("uforwarder-timeout-count", b"2"),
        ],
    )


@pytest.mark.parametrize(
    ("key", "original", "said"),
    [
        (message(b2=b"t"), None, {"topic": b"t", "partition": b"0", "offset": b"0"}),
        (message(b2=b"t", b6=b""), None, {"topic": b"t", "partition": b"0", "offset": b"0"}),
        (message(n4=5, b2=b"t"), None, {"topic": b"t", "partition": b"0", "offset": b"5"}),
        # the last of a field counts
        (message(b2=b"t") + message(b2=b"u"), None, {"topic": b"u", "partition": b"0", "offset": b"0"}),
        # fields of later versions are passed over: a number, bytes, 8 bytes, 4 bytes
        (
            message(b2=b"t", n9=1, b100=b"x") + b"\x51" + bytes(8) + b"\x5d" + bytes(4),
            None,
            {"topic": b"t", "partition": b"0", "offset": b"0"},
        ),
        (message(b2=b"t", n4=-1), None, {"topic": b"t", "partition": b"0", "offset": b"-1"}),
        (message(b2=b"\xff"), None, {"topic": b"\xff", "partition": b"0", "offset": b"0"}),
    ],
)
def test_what_is_missing_or_odd(key: bytes, original: bytes | None, said: dict[str, bytes]) -> None:
    assert unpack(key) == (original, [(f"uforwarder-{name}", value) for name, value in said.items()])


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"order-17",
        b"\xff" * 20,
        message(n1=3),
        WHOLE[:-1],
        WHOLE[:20],
        message(n2=5),
        message(b2=b"t", b4=b"x"),
        # a length beyond the end, a group, field 0
        b"\x12\x7fabc",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01abc",
        b"\x13",
        message(b2=b"t") + b"\x02\x00",
    ],
)
def test_what_is_no_such_message_is_left_alone(key: bytes | None) -> None:
    assert unpack(key) is None


def test_no_key_raises_an_error() -> None:
    chosen = random.Random(1)
    for _ in range(5_000):
        cut = bytearray(WHOLE[: chosen.randrange(len(WHOLE) + 1)])
        for _ in range(chosen.randrange(3)):
            cut.insert(chosen.randrange(len(cut) + 1), chosen.randrange(256))
        found = unpack(bytes(cut))
        assert found is None or found[1][0][0] == "uforwarder-topic"
