"""uForwarder's records: the key of each is a Protocol Buffers message, with the place of the original record and the original key.

Intake unpacks it: the original key is the key of the event, and what else it says becomes headers, which the dialect `uforwarder` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import udf

from orchestration.rules.seeds import Row

DIALECT: Final = "uforwarder"

_HEADERS: Final = "array<struct<key: string, value: binary>>"
_UNPACKED: Final = f"struct<key: binary, headers: {_HEADERS}>"

# Numbers and names of the fields. The original key, field 6, is no header.
_KEY: Final = 6
_NUMBERS: Final = {1: "retry-count", 3: "partition", 4: "offset", 5: "timestamp", 7: "timeout-count"}
_TOPIC: Final = 2
_NANOSECONDS: Final = 1_000_000

# The types of values in the format: varint, 64 bits, length-delimited, 32 bits.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def with_unpacked_keys(records: DataFrame, declared: Iterable[Row]) -> DataFrame:
    """Events, with the keys of those sources unpacked whose dialect this is. A key that can't be unpacked stays as it is.

    declared: rows of the seed `sources`, or the topic of commands, which has no dialect.
    """
    sources = [row["source"] for row in declared if row.values.get("dialect") == DIALECT]
    if not sources:
        return records
    # the condition inside: Spark calls a function of Python for all rows, whatever condition stands around it
    packed = F.when(F.col("source").isin(*sources), F.col("key"))
    return (
        records.withColumn("unpacked", udf(unpack, _UNPACKED)(packed))
        .withColumns(
            {
                "key": F.when(F.col("unpacked").isNotNull(), F.col("unpacked.key")).otherwise(F.col("key")),
                "headers": F.when(
                    F.col("unpacked").isNotNull(), F.concat(F.coalesce("headers", F.array().cast(_HEADERS)), F.col("unpacked.headers"))
                ).otherwise(F.col("headers")),
            }
        )
        .drop("unpacked")
    )


def unpack(key: bytes | None) -> tuple[bytes | None, list[tuple[str, bytes]]] | None:
    """The original key (None if there is none, or it is empty), and what else the message says as headers; None if it is no such message.

    Numbers as decimal text, the timestamp in milliseconds.
    """
    if key is None:
        return None
    found: dict[int, Any] = {}
    try:
        for number, kind, value in _fields(bytes(key)):
            is_expected = kind == (_BYTES if number in (_TOPIC, _KEY) else _VARINT)
            if number in (_TOPIC, _KEY, *_NUMBERS):
                if not is_expected:
                    return None
                # of a field that comes twice, the last counts
                found[number] = value
    except ValueError:
        return None
    if _TOPIC not in found:
        return None
    headers = [(f"{DIALECT}-topic", found[_TOPIC])]
    for number, name in _NUMBERS.items():
        # a number that is 0 is not written; a partition and an offset may be 0
        if number in found or name in ("partition", "offset"):
            value = found.get(number, 0)
            signed = value - (1 << 64) if value >= 1 << 63 else value
            headers.append((f"{DIALECT}-{name}", b"%d" % (signed // _NANOSECONDS if name == "timestamp" else signed)))
    return found.get(_KEY) or None, headers


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message: number, type, and value. Raises ValueError where it doesn't go on as one."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"type {kind}")
        if number == 0 or at + length > len(message):
            raise ValueError("the message ends inside a field")
        yield number, kind, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, seven in each byte, and where it ends."""
    value = 0
    for place in range(10):
        if at + place >= len(message):
            raise ValueError("the message ends inside a number")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise ValueError("a number has more than ten bytes")
