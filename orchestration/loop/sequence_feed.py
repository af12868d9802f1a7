"""The topic of sequences: tells consumers which sequences are held, and how far reports are decided. docs/sequences.md has the protocol.

Consumers rely on its order: what has changed comes first, then how far reports are decided. So the topic has one partition, each write is
one transaction, and a loop that begins to write shuts out the one before it. It only repeats what the tables say: if it is lost, the next
start writes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from orchestration.kafka.cluster import ClusterError
from orchestration.kafka.json_topics import JsonTopic, JsonTopicError
from orchestration.loop.discovery import Discovery
from orchestration.loop.feeds import delayed
from orchestration.loop.health import SEQUENCES, Health
from orchestration.loop.open_sequences import OpenSequences
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult

DECIDED: Final = "~decided"
"""The key of the record that says up to where each partition of the report topics is decided. No sequence has this key."""


@dataclass
class SequenceFeed:
    """Writes the sequences that have changed.

    topic: None where `sequences_topic` is empty.
    """

    topic: JsonTopic | None
    sequences: OpenSequences
    discovery: Discovery
    health: Health
    _said: dict[str, str] | None = None
    """What the topic says, by key; None: not known."""
    _decided: Mapping[str, int] = field(default_factory=dict)

    def note(self, state: LoopState) -> None:
        """Called after the decide step: if every report that was taken in is decided, consumers may be told so."""
        if not state.window.undecided:
            found = (part for parts in self.discovery.partitions.values() for part in parts)
            self._decided = {f"{one.topic}/{one.number}": state.offsets.of(one) for one in found}

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Writes what has changed since the last time."""
        report = StepReport(state)
        says = self._said is not None and self._said.keys() != {DECIDED}
        if self.topic is None or not (self.sequences.keeps_sequences() or says):
            return report.result()
        if not self.health.may(SEQUENCES) or self.health.unsure:
            return report.result()
        try:
            # decisions of this tick are told with the offsets up to which reports are decided
            self.sequences.look(state.watermark, now)
            written = self._write(self.topic)
        except (JsonTopicError, ClusterError) as error:
            self._said = None
            report.failed(SEQUENCES, delayed("consumers are not told which sequences are held; it is tried again", error))
            return report.result()
        except Exception as error:
            return report.result(error)
        report.recovered(SEQUENCES)
        report.count("sequences", written)
        return report.result()

    def _write(self, topic: JsonTopic) -> int:
        """Returns how many sequences were written."""
        decided, held = json.dumps(self._decided, sort_keys=True), self.sequences.held
        # all are compared only where it is not known which have changed: a hundred thousand would take a tenth of a second of each tick
        touched: Iterable[str] | None = self.sequences.touched
        if self._said is None or topic.is_lost():
            self._said, touched = topic.begin(), None
        said = self._said
        if touched is None:
            touched = [*held, *(key for key in said if key not in held and key != DECIDED)]
        changes = {key: held.get(key) for key in touched if said.get(key) != held.get(key)}
        if changes or said.get(DECIDED) != decided:
            topic.write([*changes.items(), (DECIDED, decided)])
        for key, value in (*changes.items(), (DECIDED, decided)):
            if value is None:
                del said[key]
            else:
                said[key] = value
        self.sequences.told()
        return len(changes)
