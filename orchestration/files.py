"""Files that other processes read at any moment."""

from __future__ import annotations

from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replaces the file in one step: a reader sees the old one or the new one. Raises OSError."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
