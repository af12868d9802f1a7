"""The id of the sequence that a record belongs to, as the column `sequence` of redrive's seed `routes` says it."""

from __future__ import annotations

import hashlib
import json
from typing import cast

from confluent_kafka import Message

_MOST, _KEPT = 256, 243


def sequence_id(place: str, record: Message) -> str | None:
    """The id; None if the record is in no sequence. place: `key`, the name of a header, or a path of names into a JSON payload ($.a.b).

    The same as in redrive's SQL (macros/identity/sequence_id.sql): bytes that are no text are written as hexadecimal digits.
    """
    if place.startswith("$."):
        found = _at(place, record.value())
    elif place == "key":
        found = _text(record.key())
    else:
        headers = cast("list[tuple[str, bytes | None]]", record.headers() or [])
        found = _text(next((value for key, value in reversed(headers) if key == place), None))
    # an id that is no text, such as half of a surrogate pair in JSON, is none
    return found if found and found.encode(errors="replace").decode() == found else None


def names_of(found: str) -> tuple[str, str]:
    """How redrive may write an id: as it is, but cut if it has more than 256 characters, with its hash at the end; or only its hash.

    The latter if the privacy of the route keeps no payload, or denies the header.
    """
    digest = hashlib.sha256(found.encode()).hexdigest()
    return found if len(found) <= _MOST else f"{found[:_KEPT]}~{digest[:12]}", digest


def _text(value: str | bytes | None) -> str | None:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex().upper()


def _at(path: str, value: str | bytes | None) -> str | None:
    try:
        found = json.loads(value or b"")
        for name in path[2:].split("."):
            found = found[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
