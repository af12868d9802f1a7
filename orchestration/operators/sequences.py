"""Sequences and their followers: which are selected, and which deliveries a command about them lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from orchestration.operators.commands import CommandError
from orchestration.operators.lists import MOST, Target, select_deliveries
from orchestration.operators.selections import Selection, literal_text, matches

if TYPE_CHECKING:
    from orchestration.operators.dead_letters import DeadLetters

SequenceState = Literal["waiting", "dead", "following", "sent", "all"]

# The states of a message in which its sequence is not done with it.
_OPEN = "('waiting', 'held', 'sent', 'following', 'dead', 'dead_letter_pending', 'refused')"


@dataclass(frozen=True)
class SequenceSelection:
    """Selects sequences that match every field that is given. keys: names as the mart `sequences` has them (`sequence_key`)."""

    keys: tuple[str, ...] = ()
    topic: str | None = None
    group: str | None = None
    state: SequenceState = "all"

    def condition(self) -> str:
        """One condition in SQL over the columns of `sequences`."""
        parts = [
            f"sequence_key in ({', '.join(map(literal_text, self.keys))})" if self.keys else None,
            matches("original_topic", self.topic),
            matches("consumer_group", self.group),
            None if self.state == "all" else f"state = {literal_text(self.state)}",
        ]
        return " and ".join(part for part in parts if part) or "true"


def listed(selection: SequenceSelection) -> str:
    """The select of `redrive sequences list`: what is held longest comes first."""
    return f"""
        select sequence_key, state, held_since, failed_message, following, sent, dead from sequences
        where {selection.condition()}
        order by held_since nulls last, sequence_key
    """


def members(key: str) -> str:
    """The select of `redrive sequences show`: the messages that a sequence is not done with, in its order."""
    return f"""
        select message_id, messages.state, attempts, next_due, error_class, reason
        from messages
        join (select any_value(struct(consumer_group, original_topic, original_partition, sequence)) as one from sequences
            where sequence_key = {literal_text(key)})
        where
            consumer_group <=> one.consumer_group and original_topic = one.original_topic and original_partition = one.original_partition
            and sequence = one.sequence and messages.state in {_OPEN}
        order by original_offset
    """


def to_release(dead: DeadLetters, selection: SequenceSelection) -> list[Target]:
    """The followers of the selected sequences, in the order in which they are to be sent. Raises CommandError if there are too many."""
    rows = dead.rows(
        f"""
        select message_id, delivery_id, unix_millis(due_at) as due_ms, original_topic, consumer_group, state, since from followers
        where state = 'following' and sequence_key in (select sequence_key from sequences where {selection.condition()})
        order by sequence_key, original_offset
        limit {MOST + 1:d}
        """
    )
    if len(rows) > MOST:
        raise CommandError(f"more than {MOST:,} messages are selected: select fewer sequences")
    return [Target(**row) for row in rows]


def to_skip(dead: DeadLetters, selection: SequenceSelection) -> dict[str, list[Target]]:
    """The first failed message of each selected sequence, by the command that ends it: `cancel` if it waits, `discard` if it is dead.

    One that is sent, and not known to be processed, is in neither list.
    """
    failed = f"message_id in (select failed_message from sequences where {selection.condition()})"
    return {
        "cancel": select_deliveries(dead, "cancel", Selection(where=failed)),
        "discard": select_deliveries(dead, "discard", Selection(where=f"state in ('open', 'refused') and {failed}")),
    }


def left_out(dead: DeadLetters, selection: SequenceSelection, targets: Sequence[Target]) -> list[str]:
    """The selected sequences without a target, in words: those that are named and not held, and those of another state."""
    held = {row["sequence_key"]: row for row in dead.rows(listed(selection))}
    changed = {one.message_id for one in targets}
    unknown = [f"{key} is not held, or is left out by another option" for key in selection.keys if key not in held]
    others = [
        f"{key}: {row['state']}, {row['failed_message'] or 'nothing'} has failed, {row['following']} messages wait"
        for key, row in held.items()
        if row["failed_message"] not in changed
    ]
    return unknown + others
