"""Files that other processes read at any moment, and the place for those that can be made again."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

# In seconds.
_KEPT_FOR = 30 * 86_400


def write_atomically(path: Path, text: str) -> None:
    """Replaces the file in one step: a reader sees the old one or the new one. Raises OSError."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def copy_if_there(path: Path, directory: Path) -> None:
    """Copies a file that saves work but isn't needed, if it is there and can be copied. The directory is made if it is missing."""
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, directory / path.name)


def remove_unused(directory: Path, pattern: str) -> None:
    """Removes files of the cache that nobody has used for 30 days, by their time of modification. Raises OSError."""
    old = time.time() - _KEPT_FOR
    for file in directory.glob(pattern):
        if file.stat().st_mtime < old:
            file.unlink(missing_ok=True)


def cache_directory() -> Path:
    """Where files are kept that can be made again: ``$XDG_CACHE_HOME/redrive``, by default ``~/.cache/redrive``. Raises RuntimeError."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "redrive"
