"""Silence is a success only where every report has been read that could speak against it."""

from __future__ import annotations

import pytest

from orchestration.loop.completeness import Completeness


@pytest.mark.parametrize(
    ("unread", "topics", "complete"),
    [
        ([], ["orders"], True),
        ([], None, True),
        (["orders"], ["orders"], False),
        (["orders"], ["orders-2"], True),
        (["^eu[.]", "orders"], ["eu.things"], False),
        (["^eu[.]", "orders"], ["us.things"], True),
        (["^eu[.]"], ["us.things", "eu.things"], False),
        (["*"], ["orders"], False),
        # nobody knows what it is about: any source may speak for it
        (["orders"], None, False),
        (["orders"], [], False),
    ],
)
def test_a_source_that_is_not_read_concerns_what_it_speaks_for(unread: list[str], topics: list[str] | None, complete: bool) -> None:
    assert Completeness(frozenset(unread)).of(topics) is complete
    assert not Completeness(frozenset(unread), decided=False).of(topics)
