"""How far operators' commands are issued: a part of the state that `ticks` keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

# With a rate, orders are issued up to this long before they are due. A pause or a stop of the command does not take them back.
ISSUED_AHEAD = timedelta(seconds=20)


@dataclass(frozen=True)
class IssuedCommands:
    """How much of each command was issued.

    since: the first batch that may hold a command that is open; 0: not known. issued: how many messages of each command's list are issued.
    """

    since: int = 0
    issued: Mapping[str, int] = field(default_factory=dict)

    def of(self, command: str) -> int:
        """How much of a command was issued."""
        return self.issued.get(command, 0)

    def with_issued(self, command: str, number: int) -> IssuedCommands:
        """After more of a command was issued."""
        return replace(self, issued={**self.issued, command: number})

    def without(self, command: str) -> IssuedCommands:
        """Without a command that has ended."""
        return replace(self, issued={other: number for other, number in self.issued.items() if other != command})

    def raised(self, issued: Mapping[str, int]) -> IssuedCommands:
        """With what the events themselves say was issued, where that is more."""
        return replace(self, issued={**self.issued, **{command: max(number, self.of(command)) for command, number in issued.items()}})
