"""What is known of sequences of outboxes that are open in the tables."""

from __future__ import annotations

import numpy as np

from orchestration.loop.sequences_held import SequencesHeld


def test_what_was_added_is_held_and_nothing_else() -> None:
    held = SequencesHeld(np.array([], np.int64))
    assert held.among({"a", "b"}) == set()
    held.add({"a"})
    held.add(["b", "c"])
    held.add([])
    assert held.among(["a", "c", "d"]) == {"a", "c"}
    assert held.among([]) == set()


def test_nothing_is_added_to_what_is_not_known() -> None:
    held = SequencesHeld()
    held.add({"a"})
    assert held.known is None
