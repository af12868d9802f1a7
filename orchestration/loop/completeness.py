"""Of which topics every failure that was reported by a moment is known: only silence about these is a success.

A source that is behind, or can't be read, may hold the report that speaks against a success: what it speaks for has to wait, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestration.rules.topic_patterns import topic_matches


@dataclass(frozen=True)
class Completeness:
    """What is known. unread: what the sources speak for of which not everything is read: names of topics, and patterns.

    decided: whether all that was read is decided, too.
    """

    unread: frozenset[str] = frozenset()
    decided: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether everything is known that was reported."""
        return self.decided and not self.unread

    def of(self, topics: Collection[str] | None) -> bool:
        """Whether all is known that was reported about these original topics; none: it is not known which these are."""
        if self.is_whole or not self.decided or not topics:
            return self.is_whole
        return not any(topic_matches(topic, pattern) for topic in topics for pattern in self.unread)
