"""The status file of the loop: small, written with every tick, so that `redrive status` needs neither Spark nor Kafka."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestration.files import write_atomically
from orchestration.presence import Presence


@dataclass(frozen=True)
class Entry:
    """A part of the loop that doesn't work. kind, name: as in `Part` of loop/health.py; error: Kafka's name of the error."""

    kind: str
    name: str
    why: str
    error: str | None = None

    @property
    def what(self) -> str:
        """The part, for people."""
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(frozen=True)
class Status:
    """The loop after its last tick. Times are ISO 8601, UTC."""

    state: str
    generation: int
    instance: str
    pid: int
    tick: int
    at: str
    watermark: int
    batch: int
    floor: str
    next_due: str | None
    in_lane: int = 0
    """How many messages wait for their time in the timed lane."""
    lane_next_due: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    step_ms: dict[str, int] = field(default_factory=dict)
    lateness_ms: tuple[int, int] | None = None
    """Of what was sent in the tick: the median and the 99th percentile."""
    sent: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each lane, `timed` and `bulk`: how many messages were `delivered`, and their `lateness_ms`."""
    trouble: dict[str, str] = field(default_factory=dict)
    """For people: what doesn't work, and why."""
    health: tuple[Entry, ...] = ()
    """The same for programs."""


_BEFORE_ANY = Status("running", 0, "", 0, 0, "", 0, 0, "", None)


def write_status(path: Path, status: Status) -> None:
    """Replaces the file. Raises OSError."""
    write_atomically(path, json.dumps(asdict(status), indent=2) + "\n")


def read_status(path: Path) -> Status | None:
    """The last status; None where no loop has run yet. Another version may have written it: what is missing is as in `_BEFORE_ANY`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    known = {one.name: content[one.name] for one in fields(Status) if one.name in content}
    health = tuple(Entry(*(entry.get(one.name) for one in fields(Entry))) for entry in content.get("health", ()))
    return replace(_BEFORE_ANY, **{**known, "health": health})


def is_alive(status: Status, home: Path) -> bool:
    """Whether the process that wrote the status is still there. home: of the loop, which holds a lock there while it lives.

    If the lock tells nothing, the process id decides: it may be of another machine, or used again; that of this process is (in each
    container, the first process is number 1).
    """
    if status.state == "stopped":
        return False
    is_there = Presence(home).is_there(status.generation)
    if is_there is not None:
        return is_there
    if status.pid == os.getpid():
        return False
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def text(moment: datetime | None) -> str | None:
    """A moment as the status file has it."""
    return moment.isoformat(timespec="milliseconds") if moment else None
