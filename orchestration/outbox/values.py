"""Values of columns as text, bytes and times."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa


def in_words(error: Exception) -> str:
    """The database's own words: SQLAlchemy adds the statement, and a link."""
    text = str(getattr(error, "orig", None) or error)
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else 'no answer'}"


def id_values(column: sa.Column[Any], texts: Iterable[str]) -> list[Any]:
    """Ids as their column has them."""
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = str
    # object: a type that SQLAlchemy has no class of Python for, such as a domain; the database converts the text itself
    return [*texts] if kind in (str, object) else [kind(text) for text in texts]


def text_of(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode(errors="replace")
    return None if value is None else str(value)


def bytes_of(value: Any) -> bytes | None:
    if value is None:
        return None
    return bytes(value) if isinstance(value, bytes | memoryview | bytearray) else str(value).encode()


def headers_of(given: Any, column: str) -> dict[str, bytes | None]:
    """The headers in a column: one for each entry of a JSON object; null is none. Any other value is a header with the column's name."""
    try:
        parsed = json.loads(given) if isinstance(given, str | bytes) else given
    except (ValueError, RecursionError):
        return {column: bytes_of(given)}
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        return {column: bytes_of(given)}
    return {name.encode(errors="replace").decode(): _header(value) for name, value in parsed.items()}


def _header(value: Any) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    # JSON may hold half of a character, which is no text
    return text.encode(errors="replace")


def moment_of(value: Any) -> datetime | None:
    """A time of the database, aware. One without a zone is UTC."""
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
