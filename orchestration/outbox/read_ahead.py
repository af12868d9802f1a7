"""The next page of pending rows, read in a thread while its caller works on the page before."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from orchestration.outbox.patience import NoAnswerError, Patience
from orchestration.outbox.states import Page, Place

# How long a page may have been read before it is used, in seconds: its owner may have changed the rows.
_FRESH = 10.0

# How many pages are read one after another, before what was committed late is looked for among the first again.
_PAGES = 20


@dataclass(frozen=True)
class _Begun:
    """A page that is being read, or was. at: when it began, a monotonic time. before: the ids of the page before."""

    at: float
    before: pa.ChunkedArray


@dataclass
class ReadAhead:
    """At most one page at a time. reader: its thread."""

    reader: Patience
    _begun: _Begun | None = field(default=None, init=False)
    _pages: int = field(default=0, init=False)
    """How many were read, each after the one before."""

    def begin(self, page: Page, read: Callable[[Place], Page]) -> None:
        """Begins to read the page after this one, if there may be one. read: reads what comes after a place."""
        if page.last is None or page.is_all or self._pages >= _PAGES:
            self._pages = 0
            return
        last = page.last
        # as long as an earlier page is still being read, which nobody waits for any more, none is read ahead
        with suppress(NoAnswerError):
            self.reader.begin(lambda: read(last))
            self._begun = _Begun(time.monotonic(), page.rows.column("row_id"))
            self._pages += 1

    @property
    def has_begun(self) -> bool:
        """Whether there is a page to take, or it is being read."""
        return self._begun is not None

    def take(self) -> Page | None:
        """The page that was begun; None if none was, or it is too old. Raises NoAnswerError, and what reading raised."""
        begun, self._begun = self._begun, None
        if begun is None or time.monotonic() - begun.at > _FRESH:
            self._pages = 0
            return None
        page: Page = self.reader.result()
        # it was read while the page before looked pending: where places can't be compared exactly, it has rows of that page, too
        is_new = pc.invert(pc.is_in(page.rows.column("row_id"), begun.before))
        return page._replace(rows=page.rows.filter(is_new))

    def forget(self) -> None:
        """The next look begins with the first pending rows."""
        self._begun = None
