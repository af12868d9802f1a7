"""Log lines are events: a name that stays the same, and fields with what differs. docs/logs.md lists all of them.

What a field holds may be foreign text (an error's class, a topic's name) or have a secret in it: it is cleaned here, when the line is
written, for every handler and in both forms. The forms themselves, text and JSON, are those of cli/log_lines.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from orchestration.cli.output import LONGEST_LINE, one_line, redacted

Plain: TypeAlias = "str | int | float | bool | list[str]"

# However long the fields before it are, so many letters of a field are shown.
_LEAST: Final = 40

# What needs no quotes. The others are written as logfmt has them: between quotes, with a backslash before quotes and backslashes.
_BARE: Final = re.compile(r'[^\s"=\\]+')


def event(log: logging.Logger, level: int, name: str, /, **fields: object) -> None:
    """Logs an event. name: in snake case and the past tense. A field that is None is left out; a time is written in UTC.

    exc_info: no field, but whether the traceback of the error that is handled follows.
    """
    if log.isEnabledFor(level):
        exc_info = bool(fields.pop("exc_info", False))
        log.log(level, Event(name, fields), exc_info=exc_info, stacklevel=2)


@dataclass(frozen=True)
class Event:
    """What a record of the log says. Its text, which handlers of others show too, is `name field=value field="a value"`, on one line."""

    name: str
    fields: Mapping[str, object]

    def cleaned(self) -> dict[str, Plain]:
        """The fields without secrets: numbers as they are, everything else as text."""
        return {name: _cleaned(value) for name, value in self.fields.items() if value is not None}

    def __str__(self) -> str:
        parts, room = [self.name], LONGEST_LINE
        for name, value in self.cleaned().items():
            text = _quoted(one_line(_text(value), max(room, _LEAST)))
            parts.append(f"{name}={text}")
            room -= len(text)
        return " ".join(parts)


def _cleaned(value: object) -> Plain:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(str(item)) for item in value]
    return redacted(str(value))


def _text(value: Plain) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(value) if isinstance(value, list) else str(value)


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
