"""The page that is read ahead is the one that was begun, fresh, and without rows of the page before."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from orchestration.outbox import read_ahead
from orchestration.outbox.patience import NoAnswerError, Patience
from orchestration.outbox.read_ahead import ReadAhead
from orchestration.outbox.states import Page, Place


def page(*ids: str, is_all: bool = False) -> Page:
    """A page with these rows."""
    return Page(pa.table({"row_id": pa.array(ids, pa.string())}), is_all, (ids[-1],) if ids else None)


def ids_of(found: Page | None) -> list[str] | None:
    """The ids of a page."""
    return None if found is None else found.rows.column("row_id").to_pylist()


def test_the_page_after_is_read_once_without_rows_of_the_page_before() -> None:
    ahead, asked = ReadAhead(Patience(5)), list[Place]()

    def read(after: Place) -> Page:
        asked.append(after)
        return page("2", "3", "4")

    assert ahead.take() is None
    ahead.begin(page("1", "2"), read)
    assert ids_of(ahead.take()) == ["3", "4"]
    assert asked == [("2",)]
    assert ahead.take() is None


@pytest.mark.parametrize("last", [page("1", is_all=True), page()])
def test_after_the_last_page_nothing_is_read(last: Page) -> None:
    ahead = ReadAhead(Patience(5))
    ahead.begin(last, lambda _: page("2"))
    assert ahead.take() is None


def test_what_was_forgotten_or_is_old_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = ReadAhead(Patience(5))
    ahead.begin(page("1"), lambda _: page("2"))
    ahead.forget()
    assert ahead.take() is None
    monkeypatch.setattr(read_ahead, "_FRESH", 0.0)
    ahead.begin(page("1"), lambda _: page("2"))
    assert ahead.take() is None


def test_a_page_that_nobody_waits_for_any_more_is_not_taken_for_the_next() -> None:
    ahead, goes_on = ReadAhead(Patience(0.01)), threading.Event()

    def slow(_: Place) -> Page:
        goes_on.wait(5)
        return page("2")

    ahead.begin(page("1"), slow)
    with pytest.raises(NoAnswerError):
        ahead.take()
    ahead.begin(page("8"), lambda _: page("9"))
    goes_on.set()
    assert ahead.take() is None


def test_the_first_rows_are_looked_at_again_after_some_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_PAGES", 2)
    ahead, taken = ReadAhead(Patience(5)), list[bool]()
    for number in range(6):
        ahead.begin(page(str(number)), lambda _: page("next"))
        taken.append(ahead.take() is not None)
    assert taken == [True, True, False, True, True, False]
