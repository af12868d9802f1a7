"""Tells whether the loop of a generation, started with this home, has ended: it holds a lock on a file of its own for as long as it lives.

A process id in a file is not enough: ids are reused, and mean another process in another container. The operating system releases the lock
when the process ends, however it ends; a process that is frozen keeps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class Presence:
    """The lock files of a home, and the lock that this process's loop holds."""

    def __init__(self, home: Path) -> None:
        self._directory = home / "loops"
        self._mine: int | None = None

    def show(self, generation: int) -> None:
        """Holds the lock of a generation until `end`, or until this process is gone. Removes the files of earlier loops that have ended.

        On a file system without locks it holds none, and `has_ended` returns False.
        """
        self.end()
        with contextlib.suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            for path in self._directory.glob("*.lock"):
                before = path.stem
                if before.isdigit() and int(before) < generation and self.has_ended(int(before)):
                    path.unlink(missing_ok=True)
            file = os.open(self._path(generation), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
            self._mine = file

    def has_ended(self, generation: int) -> bool:
        """Whether that loop ran with this home, and has ended. False if it still runs, is frozen, or ran elsewhere."""
        return self.is_there(generation) is False

    def is_there(self, generation: int) -> bool | None:
        """Whether that loop still runs, or is frozen. None: not known here, as it ran elsewhere, or as another user."""
        try:
            file = os.open(self._path(generation), os.O_RDWR)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(file)
        return False

    def end(self) -> None:
        """Releases the lock. The file stays, and shows that this loop ran here."""
        mine, self._mine = self._mine, None
        if mine is not None:
            os.close(mine)

    def _path(self, generation: int) -> Path:
        return self._directory / f"{generation}.lock"
