"""Remembers what was shown last. Shell completion offers it, because starting Spark would take ten seconds, importing it four."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from orchestration.files import cache_directory
from orchestration.tables.query import Rows

_REMEMBERED = ("message_id", "original_topic", "error_class", "consumer_group", "fingerprint")
_REMEMBERED_EACH = 200


def remembered_in(home: Path) -> Path:
    """The file for a home. It is in the user's cache directory, as commands that only show something write nothing to the home."""
    return cache_directory() / "completion" / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.json"


def remember(home: Path, rows: Rows) -> None:
    """Stores what was shown, so that the next command's options can be completed without Spark."""
    known = recall(home)
    for name in _REMEMBERED:
        if name in rows.columns:
            place = rows.columns.index(name)
            shown = [row[place] for row in rows.rows if row[place] and row[place].isprintable()]
            known[name] = list(dict.fromkeys([*shown, *known.get(name, ())]))[:_REMEMBERED_EACH]
    with suppress(OSError, RuntimeError):
        file = remembered_in(home)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")


def recall(home: Path) -> dict[str, list[str]]:
    """What was shown last, by column; empty if it can't be read."""
    try:
        known = json.loads(remembered_in(home).read_text(encoding="utf-8"))
        return {name: [text for text in known[name] if isinstance(text, str)] for name in _REMEMBERED if name in known}
    except (OSError, ValueError, TypeError, RuntimeError):
        return {}
