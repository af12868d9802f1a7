"""The topics of which every failure reported so far is known. Only for these does the absence of a report mean success.

A source that is behind, or can't be read, may hold a report that a message failed again: the topics that it speaks for wait, and no others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestration.rules.topic_patterns import topic_matches


@dataclass(frozen=True)
class Completeness:
    """What is known. unread: the topics and patterns of topics that sources with unread records speak for.

    decided: whether everything that was read is decided.
    """

    unread: frozenset[str] = frozenset()
    decided: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether every report is read and decided."""
        return self.decided and not self.unread

    def of(self, topics: Collection[str] | None) -> bool:
        """Whether every report about these original topics is known. topics: None if unknown; then all topics must be complete."""
        if self.is_whole or not self.decided or not topics:
            return self.is_whole
        return not any(topic_matches(topic, pattern) for topic in topics for pattern in self.unread)
