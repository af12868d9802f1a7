"""What may be due: from when on the wheel is read, which destinations are paused, which sends are of unknown outcome, when to look next.

Plain values without Spark or Kafka: tests/unit/test_window.py has the rules as tables of cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from orchestration.loop.due import Window
from orchestration.loop.health import FIRST_PAUSE, Pause, Reason

# The first attempt to send to a paused destination reads what is due within this time after its floor.
FIRST_REACH = timedelta(seconds=60)

TRIED_AT_ONCE = 100
"""How many paused destinations one step tries."""


@dataclass(frozen=True)
class UnknownSends:
    """Sends whose outcome is unknown: the first was due at `since`, which the floor may not pass; by `until`, all may be sent again."""

    since: datetime
    until: datetime


# More than lies between the first and the last due time. A reach that doubled without a bound would soon end after Python's last year.
_LONGEST_REACH = timedelta(days=3_650)


@dataclass(frozen=True)
class PausedDestination(Pause):
    """A destination that takes no sends. Its messages wait from `floor` on, while the loop's own floor moves over them.

    reach: how far from its floor on the next attempt looks. It doubles with each that succeeds, so that one that fails reads little. A row
    of `ticks` doesn't hold it: after a start, the first attempt looks at little again.
    """

    floor: datetime = field(kw_only=True)
    reach: timedelta = FIRST_REACH

    def failed(self, reason: Reason, now: datetime) -> PausedDestination:
        """After another attempt that failed."""
        return PausedDestination(reason, now + self.longer, self.longer, floor=self.floor)

    def sent(self, upto: datetime, until: datetime) -> PausedDestination:
        """After an attempt that sent everything up to a moment: the next attempt follows at `until`."""
        return PausedDestination(self.reason, until, floor=upto, reach=min(self.reach * 2, _LONGEST_REACH))

    def window(self, topic: str, now: datetime) -> Window:
        """What the next attempt looks at."""
        return Window(topic, self.floor, min(now, self.floor + self.reach))


@dataclass(frozen=True)
class SendWindow:
    """Where publishing stands.

    floor: no open delivery was due before, except those to paused destinations. paused: these destinations, each with a floor of its own.
    unpublished_since: the first due time of what stays in order and that a step has left out, or that were not accepted; None: of none.
    Only `floor` and `paused` are kept in `ticks`; the rest is in memory, and a start finds it in the tables. undecided: how many inputs
    have no decision, the first of them recorded at undecided_since. next_due: when to look into the wheel again; None: at once.
    """

    floor: datetime
    paused: Mapping[str, PausedDestination] = field(default_factory=dict)
    unknown: tuple[UnknownSends, ...] = ()
    undecided: int = 0
    undecided_since: datetime | None = None
    next_due: datetime | None = None
    unpublished_since: datetime | None = None

    @property
    def lowest_floor(self) -> datetime:
        """No open delivery was due before, wherever it goes."""
        return min([self.floor, *(one.floor for one in self.paused.values())])

    def closed_until(self, upto: datetime) -> datetime:
        """How far a floor may move after everything up to a moment was read: not over what is undecided, or of unknown outcome."""
        limits = [upto, *(some.since for some in self.unknown), *filter(None, [self.undecided_since, self.unpublished_since])]
        return min(limits)

    # ---------- inputs that are not decided

    def kept_under(self, since: datetime | None) -> SendWindow:
        """With floors that are not later than `since`."""
        if since is None:
            return self
        paused = {topic: replace(one, floor=min(one.floor, since)) for topic, one in self.paused.items()}
        return replace(self, floor=min(self.floor, since), paused=paused)

    def awaiting(self, inputs: int, since: datetime) -> SendWindow:
        """With inputs that are not decided yet: a decision is due at the earliest when its input was recorded."""
        first = min(filter(None, (self.undecided_since, since)))
        return replace(self, undecided=self.undecided + inputs, undecided_since=first).kept_under(since)

    def all_decided(self) -> SendWindow:
        """Every input has a decision."""
        return replace(self, undecided=0, undecided_since=None)

    # ---------- what was sent

    def moved(self, upto: datetime) -> SendWindow:
        """The floor moves over what is closed, after everything up to a moment was read."""
        return replace(self, floor=max(self.floor, self.closed_until(upto)))

    def with_unknown(self, since: datetime, until: datetime) -> SendWindow:
        """With sends of unknown outcome."""
        return replace(self, unknown=(*self.unknown, UnknownSends(since, until)))

    def without_unknown(self) -> SendWindow:
        """After it was found out what became of all of them."""
        return replace(self, unknown=())

    def without_unknown_before(self, now: datetime) -> SendWindow:
        """Without those that may be sent again by now, and have been read with the last step."""
        return replace(self, unknown=tuple(some for some in self.unknown if some.until > now))

    # ---------- destinations that are paused

    def with_paused(self, topic: str, one: PausedDestination) -> SendWindow:
        """With a destination's pause."""
        return replace(self, paused={**self.paused, topic: one})

    def without_paused(self, topic: str) -> SendWindow:
        """Without the pause of a destination for which nothing waits any more."""
        return replace(self, paused={name: one for name, one in self.paused.items() if name != topic})

    def worth_a_try(self, now: datetime) -> list[str]:
        """The paused destinations to try in this step: if the pause of one is over, all those whose pause is half over.

        From then on their pauses end together: tried one by one, sixty of them would leave no time for anything else.
        """
        if all(one.until > now for one in self.paused.values()):
            return []
        ready = [topic for topic, one in self.paused.items() if one.until - now <= one.pause / 2]
        return sorted(ready, key=lambda topic: self.paused[topic].until)[:TRIED_AT_ONCE]

    def after_success(self, topic: str, upto: datetime, now: datetime, *, left_out: bool) -> SendWindow:
        """After an attempt that sent what waits for a paused destination, up to a moment: the rest is next, if there is any.

        left_out: the step left out what undecided inputs name, so that it must be looked for again. Where nothing waits any more, the pause
        is over.
        """
        one = self.paused[topic]
        floor = one.floor if left_out else max(one.floor, self.closed_until(upto))
        if upto < now:
            return self.with_paused(topic, one.sent(floor, now))
        if floor < min(now, self.floor):
            # something was left out, or is of unknown outcome and to be sent again, and the loop's own floor has moved over it
            return self.with_paused(topic, one.sent(floor, min((some.until for some in self.unknown), default=now + FIRST_PAUSE)))
        return self.without_paused(topic)

    # ---------- when to look next

    def look_now(self) -> SendWindow:
        """The next step looks into the wheel."""
        return replace(self, next_due=None)

    def is_due(self, now: datetime) -> bool:
        """Whether it is time to look into the wheel."""
        return self.next_due is None or now >= self.next_due

    def next_look(self, breakers: datetime | None) -> SendWindow:
        """Looks no later than something is tried again. breakers: CircuitBreakers.next_look."""
        again = [*(one.until for one in self.paused.values()), *(some.until for some in self.unknown), *filter(None, [breakers])]
        return self if self.next_due is None else replace(self, next_due=min([self.next_due, *again]))
