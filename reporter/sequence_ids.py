"""The id of the sequence that a record belongs to, as the column `sequence` of redrive's seed `routes` says it."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import cast

from confluent_kafka import Message

_MOST, _KEPT = 256, 243

# A step of a path, as Spark's get_json_object reads it: a name, a name in quotes, a place in an array.
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\['(?P<quoted>[^'?]+)'\]|\[(?P<index>\d+)\]")


def check_place(place: str) -> None:
    """Raises ValueError for a path that is none, or that may lead to several places."""
    if place.startswith("$"):
        _steps(place)


def sequence_id(place: str, record: Message) -> str | None:
    """The id; None if the record is in no sequence. place: `key`, the name of a header, or a path into a JSON payload ($.a.b, $.a[0]['b']).

    The same as in redrive's SQL (macros/identity/sequence_id.sql): bytes that are no text are written as hexadecimal digits.
    """
    if place.startswith("$"):
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


@lru_cache
def _steps(path: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    place = 1
    while place < len(path) or not steps:
        step = _STEP.match(path, place)
        if step is None or "*" in (step["name"], step["quoted"]):
            raise ValueError(f"{path} is no path to one place: $.name, $['name'], $.name[0]")
        steps.append(int(step["index"]) if step["index"] else step["name"] or step["quoted"])
        place = step.end()
    return tuple(steps)


def _at(path: str, value: str | bytes | None) -> str | None:
    try:
        # as Spark does, control characters in a text are accepted
        found = json.loads(value or b"", strict=False)
        for step in _steps(path):
            # a text has places, too, and none of them is meant
            if not isinstance(found, dict if isinstance(step, str) else list):
                return None
            found = found[step]
    except (ValueError, LookupError, RecursionError):
        return None
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
