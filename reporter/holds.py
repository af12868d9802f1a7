"""Which records may be processed: the rules of docs/sequences.md, without Kafka.

What is known of a sequence comes from two places: the topic of sequences, which says what redrive has decided, and this consumer's own
reports, which redrive may not have seen yet. Own reports count until the topic says that they are decided.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reporter.reports import Place
from reporter.sequence_ids import names_of

DECIDED: Final = "~decided"
"""The key of the record that says up to where each partition of the report topics is decided."""


class Sequence(NamedTuple):
    """What must be processed in order: the records of one partition with the same id, of one consumer group."""

    group: str
    topic: str
    partition: int
    id: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that its record in the topic of sequences may have."""
        return tuple(f"{self.group}:{self.topic}/{self.partition}/{name}" for name in names_of(self.id))


@dataclass(frozen=True)
class _Own:
    """This consumer's reports about a sequence that may not be decided yet.

    epoch: the last failure among them, None if there is none. last: the last report in each partition of the report topics.
    """

    epoch: str | None
    last: Mapping[str, int] = field(default_factory=dict)

    def then(self, epoch: str | None, place: Place) -> _Own:
        """After one more report."""
        return _Own(epoch or self.epoch, {**self.last, f"{place.topic}/{place.partition}": place.offset})


@dataclass
class Holds:
    """What is known of all sequences."""

    decided: dict[str, int] = field(default_factory=dict)
    """The offset before which each partition of the report topics (`topic/partition`) is decided."""
    _theirs: dict[str, str | None] = field(default_factory=dict)
    _own: dict[Sequence, _Own] = field(default_factory=dict)
    _anew: dict[str, str | None] | None = None
    """What a topic that was created again says so far; None: it was not."""

    # ---------- what is read

    def read(self, key: str, value: str | None) -> None:
        """A record of the topic of sequences. Records of an earlier state come before the one that says how far reports are decided."""
        if key == DECIDED:
            self.decided = {name: int(offset) for name, offset in json.loads(value or "{}").items()}
            self._own = {one: own for one, own in self._own.items() if not self._are_decided(own)}
            self._theirs, self._anew = self._theirs if self._anew is None else self._anew, None
            return
        theirs = self._theirs if self._anew is None else self._anew
        if value is None:
            theirs.pop(key, None)
        else:
            theirs[key] = json.loads(value)["epoch"]

    def begin_anew(self) -> None:
        """The topic was created again. Once it says how far reports are decided, what was read of the lost one does not count."""
        self._anew = {}

    def covers(self, ends: Mapping[str, int]) -> bool:
        """Whether everything before these offsets of the report topics is decided: then nothing that anybody has reported is missing."""
        return all(self.decided.get(name, 0) >= end for name, end in ends.items())

    def _are_decided(self, own: _Own) -> bool:
        return all(self.decided.get(name, 0) > offset for name, offset in own.last.items())

    # ---------- what is reported

    def failed(self, sequence: Sequence, place: Place) -> None:
        """A record was tried and has failed, and its report lies at a place: from now on its sequence is held."""
        self._own[sequence] = self._own.get(sequence, _Own(None)).then(str(place), place)

    def followed(self, sequence: Sequence, place: Place) -> None:
        """A record was not tried, and its report lies at a place."""
        self._own[sequence] = self._own.get(sequence, _Own(None)).then(None, place)

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Partitions of original topics are another consumer's now: it reads in the topic of sequences what this one has reported."""
        gone = {*partitions}
        self._own = {one: own for one, own in self._own.items() if (one.topic, one.partition) not in gone}

    # ---------- what may be processed

    def is_held(self, sequence: Sequence) -> bool:
        """Whether a message of the sequence has failed, and not all that waits for it is processed."""
        return sequence in self._own or any(key in self._theirs for key in sequence.keys)

    def may_process(self, sequence: Sequence, epoch: str | None, *, is_retry: bool) -> bool:
        """Whether a record may be tried. epoch: of a retry, the failure that redrive knew as the last one when it sent it."""
        if not self.is_held(sequence):
            return True
        # without a failure that is known, it can only be the turn of what this consumer has put off itself
        last = self.epoch(sequence)
        return is_retry and (last is None or epoch == last)

    def epoch(self, sequence: Sequence) -> str | None:
        """The last failure in the sequence."""
        own = self._own.get(sequence)
        if own is not None and own.epoch is not None:
            return own.epoch
        return next((self._theirs[key] for key in sequence.keys if key in self._theirs), None)
