"""The promises, as a model of one message's life: what may come next, after all that has happened to it. It knows no SQL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.fates import CHANGED, FATAL, POLICIES, UNCHARGED, Fate
from tests.simulation.history import Came, Event, Failed, Ordered


@dataclass
class Life:
    """The state of one message. may: what may come next; None among it: nothing more."""

    fate: Fate
    may: set[str | None] = field(default_factory=set)
    charged: int = 0
    least_due_ms: int = 0
    is_dead: bool = False

    def happened(self, event: Event) -> str | None:
        """Returns what is wrong with an event."""
        if isinstance(event, Came):
            return self.came(event)
        if isinstance(event, Failed):
            self.failed(event)
        else:
            self.ordered(event)
        return None

    def failed(self, event: Failed) -> None:
        """A failure is charged, unless the consumer was only too busy; the topic's policy says what follows."""
        policy = POLICIES[self.fate.topic]
        self.charged += event.error != UNCHARGED
        must_die = event.error in FATAL or (event.error == CHANGED and event.is_after) or self.charged >= policy.attempts
        self.may = {"dead"} if must_die or self.fate.is_refused else {"retry", "dead"} if event.error == CHANGED else {"retry"}
        waits = policy.least_ms[self.charged - 1] if event.error != UNCHARGED and not must_die else 0
        self.least_due_ms = event.at_ms + waits

    def came(self, event: Came) -> str | None:
        """Returns what is wrong with a record that came."""
        what = "dead" if event.is_dead else "retry"
        objections = {
            f"a {what} came where only {self.may} may come": what not in self.may,
            f"attempt {event.attempt} after {self.charged} failures": event.attempt != self.charged + (not event.is_dead),
            f"due {self.least_due_ms - event.due_ms} ms before its delay is over": not event.is_dead and event.due_ms < self.least_due_ms,
            f"{event.due_ms - event.seen_ms} ms early": event.seen_ms < event.due_ms,
            "its bytes have changed": not event.is_intact,
        }
        # after a retry, its processing decides; a consumer that succeeds reports nothing
        self.may, self.is_dead = {None}, event.is_dead
        return next((text for text, holds in objections.items() if holds), None)

    def ordered(self, event: Ordered) -> None:
        """An order changes what may come; it may also come too late to change anything."""
        if event.what == "redrive" and self.is_dead:
            self.may, self.charged, self.least_due_ms = {"dead" if self.fate.is_refused else "retry"}, 0, 0
        elif event.what == "cancel" and self.may & {"retry"}:
            self.may |= {None}
        elif event.what == "send_now":
            self.least_due_ms = 0


def broken(fates: Iterable[Fate], history: dict[int, list[Event]]) -> list[str]:
    """Each message whose life breaks a promise, and how. history: what happened to each message, by its number, in its order."""
    found: list[str] = []
    deliveries: set[str] = set()
    for fate in fates:
        life = Life(fate)
        for event in history.get(fate.number, []):
            objection = life.happened(event)
            if isinstance(event, Came):
                objection = f"{event.delivery} came twice" if event.delivery in deliveries else objection
                deliveries.add(event.delivery)
            if objection:
                found.append(f"message {fate.number} of {fate.topic}: {objection}")
                break
        else:
            if life.may and None not in life.may:
                found.append(f"message {fate.number} of {fate.topic}: nothing came where {life.may} had to")
    return found
