"""How much of a tick questions may take: so much that it is delayed by a second at most."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# With 2.5 seconds, ticks were 1.3 s longer while questions were asked one after another (docs/performance.md, Answers).
BESIDE_SECONDS: Final = 1.5

# How often to look whether a question may begin.
_LOOKS_EVERY = 0.05


class Allowance:
    """The seconds that questions have left beside the current tick. Between ticks there is no limit. The loop and the answers share it."""

    def __init__(self, seconds: float = BESIDE_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._tick_since: float | None = None
        self._question_since: float | None = None
        self._spent = 0.0

    @contextmanager
    def tick(self) -> Iterator[None]:
        """A tick, which begins with the whole allowance."""
        with self._lock:
            self._tick_since, self._spent = time.monotonic(), 0.0
        try:
            yield
        finally:
            with self._lock:
                self._tick_since = None

    @contextmanager
    def question(self) -> Iterator[None]:
        """A question that runs. There is one at a time."""
        with self._lock:
            self._question_since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._spent += self._beside()
                self._question_since = None

    def left(self) -> float:
        """Seconds; infinite between ticks, and 0 or less if a question that runs now must end."""
        with self._lock:
            return math.inf if self._tick_since is None else self._seconds - self._spent - self._beside()

    def waited_for(self, until: float) -> bool:
        """Waits until a question may begin, but not past `until` (time.monotonic). Returns whether it may."""
        while self.left() <= 0:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOKS_EVERY)
        return True

    def _beside(self) -> float:
        """For how long the question that runs has been running beside the current tick."""
        if self._tick_since is None or self._question_since is None:
            return 0.0
        return time.monotonic() - max(self._tick_since, self._question_since)
