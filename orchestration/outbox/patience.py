"""Asks a database in a thread, and waits for the answer only so long: one that doesn't answer must not stop the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """There is no answer yet."""


class Patience:
    """Runs one call after another in threads that end with the process. seconds: how long to wait for an answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._busy: threading.Event | None = None
        self._outcome: dict[str, Any] = {}

    def call(self, function: Callable[[], T]) -> T:
        """The result of a call, or its error. Raises NoAnswerError if it takes too long, and as long as that call has not ended."""
        self.begin(function)
        result: T = self.result()
        return result

    def begin(self, function: Callable[[], Any]) -> None:
        """Begins a call, whose result `result` has. Raises NoAnswerError as long as a call before has not ended."""
        if self.is_busy:
            raise NoAnswerError
        ended = self._busy = threading.Event()
        outcome: dict[str, Any] = {}
        self._outcome = outcome

        def run() -> None:
            try:
                outcome["result"] = function()
            except BaseException as error:
                outcome["error"] = error
            finally:
                ended.set()

        threading.Thread(target=run, name="outbox", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether the call that began last has not ended."""
        return self._busy is not None and not self._busy.is_set()

    def result(self) -> Any:
        """The result of the call that began last, or its error. Raises NoAnswerError if it takes too long from now on."""
        assert self._busy is not None, "no call has begun"
        if not self._busy.wait(self._seconds):
            raise NoAnswerError
        if "error" in self._outcome:
            raise self._outcome["error"]
        return self._outcome["result"]
