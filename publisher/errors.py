"""What can go wrong, and who should hear of it.

What Kafka does to a send is never an exception of `publish`: it is an outcome in a result row. Exceptions are for what
only a person can put right; while `publish` sends, a row says even that.

PublisherError
├── SettingsError               the settings cannot work; nothing was sent
│   ├── ContradictedPropertyError    a Kafka property would undo a guarantee of the publisher
│   └── RejectedPropertiesError      the Kafka client does not take the properties
├── ContractError               the rows are not rows of `ready`; nothing of them was sent
└── SessionLostError            Kafka allows nothing more for now; `publish` says it in a row, `take_charge` raises it
    ├── FencedError                  a newer producer has begun with the same transactional.id
    └── SupersededError              a loop with a higher generation is in charge
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from publisher.trouble import Trouble


class PublisherError(Exception):
    """The base of every exception that the publisher raises itself."""


class SettingsError(PublisherError):
    """The settings cannot work: a bound is out of range, or the table of error kinds is unreadable."""


class ContradictedPropertyError(SettingsError):
    """A Kafka property would undo a guarantee of the publisher."""

    def __init__(self, name: str, needed: str) -> None:
        super().__init__(f"Kafka property {name} has a value that would undo a guarantee of the publisher, which needs {needed}")
        self.name = name

    def __reduce__(self) -> tuple[type[SettingsError], tuple[str]]:
        # Executors send exceptions to the driver pickled, and the default replays __init__ with the text alone.
        return SettingsError, (str(self),)


class RejectedPropertiesError(SettingsError):
    """The Kafka client does not take the properties. names: those at fault, where that can be told."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names

    def __reduce__(self) -> tuple[type[RejectedPropertiesError], tuple[str, tuple[str, ...]]]:
        return RejectedPropertiesError, (str(self), self.names)


class ContractError(PublisherError):
    """The rows are not rows of `ready`: a column is missing or cannot be read as its type."""


class SessionLostError(PublisherError):
    """Nothing more can be sent in this call, though it may be in the next: brokers don't answer, or refuse to."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.trouble,)


class FencedError(SessionLostError):
    """A newer producer has begun with the same transactional.id, and no newer loop is known to be behind it."""


class SupersededError(SessionLostError):
    """A loop with a higher generation is in charge: this one must not send any more."""

    def __init__(self, trouble: Trouble, by: int) -> None:
        super().__init__(trouble)
        self.by = by

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.trouble, self.by)
