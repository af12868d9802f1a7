"""How log lines look: as text, or as JSON. Times are in UTC, as everywhere."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class LogLines(logging.Formatter):
    """`2026-03-01T12:00:00.000Z INFO    a message`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """The record's time, with its zone."""
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


class JsonLines(LogLines):
    """One JSON object a line; `tick=3 sent=5` becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"at": self.formatTime(record), "level": record.levelname.lower(), "message": record.getMessage()}
        line.update(getattr(record, "fields", {}))
        return json.dumps(line, ensure_ascii=False)
