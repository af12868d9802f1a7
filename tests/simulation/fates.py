"""What happens to each message, and what is expected of the policies, without any SQL. All is drawn from the seed, by a hash of names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


def chance(seed: int, *what: object) -> float:
    """A number from 0 up to 1 for anything that is named: it doesn't depend on what else is drawn."""
    digest = hashlib.sha256(repr((seed, *what)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def pick(options: Sequence[T], seed: int, *what: object) -> T:
    """One of some options, each as likely."""
    return options[int(chance(seed, *what) * len(options))]


@dataclass(frozen=True)
class Policy:
    """A retry policy: its text, the attempts it allows, and the shortest delay after the nth failure, in milliseconds."""

    text: str
    attempts: int
    least_ms: tuple[int, ...]


# by topic: jitter makes a delay shorter by up to the fraction that the policy names
POLICIES = {
    "sim.doubled": Policy("exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)", 5, (700, 1_400, 2_800, 5_600)),
    "sim.fixed": Policy("fixed(3s x 2, 7s x 2)", 5, (3_000, 3_000, 7_000, 7_000)),
    "sim.slow": Policy("linear(initial=20s, increment=10s, max=60s, jitter=0, attempts=3)", 3, (20_000, 30_000)),
    "sim.narrow": Policy("fixed(2s x 3)", 4, (2_000, 2_000, 2_000)),
    "sim.late": Policy("fixed(1s x 3)", 4, (1_000, 1_000, 1_000)),
}

NARROW = "sim.narrow"
"""Its retry topic takes small records only."""

LATE = "sim.late"
"""Its retry topic is missing at first."""

CHANGED = "com.example.ChangedException"
"""Retriable at first; fatal after the rules have changed."""

RETRIABLE = ("TimeoutError", "java.net.ConnectException", "com.example.UnknownException", CHANGED)
FATAL = ("com.example.FatalException", "com.example.PoisonException")
UNCHARGED = "com.example.BackpressureException"


@dataclass(frozen=True)
class Fate:
    """A message, and the errors of its first attempts. If it `lasts`, the last of them is the error of all further ones."""

    number: int
    topic: str
    key: bytes | None
    value: bytes | None
    errors: tuple[str, ...]
    lasts: bool

    @property
    def is_refused(self) -> bool:
        """Whether Kafka refuses its retries, but not its dead letter."""
        return self.topic == NARROW and len(self.value or b"") > 5_000

    def error(self, attempt: int) -> str | None:
        """The error of an attempt, counted from 1 over all life cycles; None: it succeeds."""
        if attempt <= len(self.errors):
            return self.errors[attempt - 1]
        return self.errors[-1] if self.lasts else None


def fate(seed: int, number: int) -> Fate:
    """The fate of a message: most fail a few times, some to the end, some fatally at once or later, some without being charged."""
    topic = pick(tuple(POLICIES), seed, "topic", number)
    count = pick((1, 1, 1, 2, 2, 3, 4, 6), seed, "errors", number)
    errors = [
        UNCHARGED if chance(seed, "uncharged", number, place) < 0.1 else pick(RETRIABLE, seed, "error", number, place)
        for place in range(count)
    ]
    if chance(seed, "fatal", number) < 0.15:
        errors[-1] = pick(FATAL, seed, "which", number)
    lasts = chance(seed, "lasts", number) < 0.25 and errors[-1] != UNCHARGED
    size = 10_000 if topic == NARROW and chance(seed, "large", number) < 0.2 else int(300 * chance(seed, "size", number))
    value = hashlib.shake_256(repr((seed, number)).encode()).digest(size)
    return Fate(
        number,
        topic,
        None if chance(seed, "keyless", number) < 0.1 else b"key-%d" % number,
        None if chance(seed, "tombstone", number) < 0.05 else value,
        tuple(errors),
        lasts,
    )
