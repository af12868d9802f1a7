"""The id of the sequence that a record belongs to, as the column `sequence` of redrive's seed `routes` says it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from confluent_kafka import Message

from reporter.reports import headers_of

_MOST, _KEPT = 256, 243
# Of a number before its point: Java writes longer ones with an exponent.
_MOST_PLACES = 7

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
        found = _text(next((value for key, value in reversed(headers_of(record)) if key == place), None))
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


class _Object(list[tuple[str, object]]):
    """A JSON object, with each of its names, also those that it has twice."""


def _no_number(word: str) -> None:
    raise ValueError(word)


# As Spark reads JSON: control characters in a text are accepted, NaN is not, and what follows the first value is not read.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_Object, parse_constant=_no_number)


def _at(path: str, value: str | bytes | None) -> str | None:
    try:
        text = (value.decode() if isinstance(value, bytes) else value or "").lstrip(" \t\r\n")
        found = _below(_DECODER.raw_decode(text)[0], _steps(path))
        return found if found is None or isinstance(found, str) else _written(found)
    except (ValueError, RecursionError):
        return None


def _below(value: object, steps: tuple[str | int, ...]) -> object:
    """What is there; None for nothing. Of names that an object has twice, the first counts that leads to something."""
    if not steps:
        return value
    first, *rest = steps
    inner: Iterable[object] = ()
    if isinstance(value, _Object) and isinstance(first, str):
        inner = (one for name, one in value if name == first)
    elif isinstance(value, list) and not isinstance(value, _Object) and isinstance(first, int):
        inner = value[first : first + 1]
    return next((found for one in inner if (found := _below(one, tuple(rest))) is not None), None)


def _written(value: object) -> str:
    """JSON as Spark writes it."""
    if isinstance(value, _Object):
        return "{" + ",".join(f"{_written(name)}:{_written(one)}" for name, one in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, float):
        return _as_java(value)
    return json.dumps(value, ensure_ascii=False)


def _as_java(number: float) -> str:
    """A number with a fraction or an exponent, as Double.toString of Java: from ten millions on and below a thousandth with an exponent."""
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{number} is no JSON")
    text = "".join(map(str, digits)).rstrip("0") or "0"
    # that of the first digit
    power = len(digits) + exponent - 1 if number else 0
    minus = "-" if sign else ""
    if not -3 <= power < _MOST_PLACES:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    text = text.ljust(power + 1, "0")
    return f"{minus}{text[: power + 1]}.{text[power + 1 :] or '0'}"
