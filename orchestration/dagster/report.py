"""The report on dead letters: read with a few grouped statements, shown as one page of markdown with its plots inside."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

# How many error classes and topics are shown by name.
_SHOWN = 12
# How much of a name fits beside a bar.
_LETTERS = 44
# For how many bars there is room at least: a single one would fill its plot.
_ROOM = 6

_AGES = (
    ("10 minutes", timedelta(minutes=10)),
    ("an hour", timedelta(hours=1)),
    ("6 hours", timedelta(hours=6)),
    ("a day", timedelta(days=1)),
    ("a week", timedelta(days=7)),
    ("a month", timedelta(days=30)),
)

Query = Callable[[str], Sequence[Any]]


@dataclass(frozen=True)
class Group:
    """Dead letters that died alike."""

    topic: str
    error_class: str
    reason: str
    dead: int
    attempts: int
    last: datetime
    example: str


@dataclass(frozen=True)
class DeadLetters:
    """What is dead at a moment. by_age: dead since less than that; over_time: by the beginning of each `step`."""

    at: datetime
    dead: int
    pending: int
    oldest: datetime | None
    groups: tuple[Group, ...]
    by_class: tuple[tuple[str, int], ...]
    by_topic: tuple[tuple[str, int], ...]
    by_age: tuple[tuple[str, int], ...]
    over_time: tuple[tuple[datetime, int], ...]
    step: str


def read_dead_letters(query: Query, now: datetime) -> DeadLetters:
    """Reads the marts `dead_letters` and `messages`. now: what ages are counted to."""
    (total,) = query("select count(*) as dead, min(dead_at) as oldest, max(dead_at) as newest from dead_letters")
    (pending,) = query("select count(*) as n from messages where state = 'dead_letter_pending'")
    groups = query(
        f"""
        select
            topic, coalesce(error_class, '(none)') as error_class, reason, count(*) as dead, max(attempts) as attempts,
            max(dead_at) as last, max_by(message_id, dead_at) as example
        from dead_letters
        group by all
        order by dead desc, topic, error_class, reason
        limit {_SHOWN}
        """
    )
    oldest, newest = _utc(total["oldest"]), _utc(total["newest"])
    step = _step(newest - oldest) if oldest and newest else "hour"
    over_time = query(f"select date_trunc('{step}', dead_at) as since, count(*) as dead from dead_letters group by all order by since")
    return DeadLetters(
        at=now,
        dead=int(total["dead"]),
        pending=int(pending["n"]),
        oldest=oldest,
        groups=tuple(
            Group(
                topic=row["topic"],
                error_class=row["error_class"],
                reason=row["reason"],
                dead=int(row["dead"]),
                attempts=int(row["attempts"] or 0),
                last=row["last"].astimezone(UTC),
                example=row["example"],
            )
            for row in groups
        ),
        by_class=_counted(query, "coalesce(error_class, '(none)')"),
        by_topic=_counted(query, "topic"),
        by_age=_by_age(query, now),
        over_time=tuple((row["since"].astimezone(UTC), int(row["dead"])) for row in over_time),
        step=step,
    )


def _counted(query: Query, what: str) -> tuple[tuple[str, int], ...]:
    rows = query(f"select {what} as what, count(*) as dead from dead_letters group by all order by dead desc, what limit {_SHOWN}")
    return tuple((row["what"], int(row["dead"])) for row in rows)


def _by_age(query: Query, now: datetime) -> tuple[tuple[str, int], ...]:
    moments = [f"timestamp '{now - age:%Y-%m-%d %H:%M:%S.%f}'" for _, age in _AGES]
    younger = ", ".join(f"count_if(dead_at > {moment}) as n{number}" for number, moment in enumerate(moments))
    (row,) = query(f"select {younger}, count(*) as n{len(_AGES)} from dead_letters")
    names = [*(f"under {name}" for name, _ in _AGES), "older"]
    counts = [int(row[f"n{number}"]) for number in range(len(names))]
    return tuple(zip(names, (count - before for count, before in zip(counts, [0, *counts], strict=False)), strict=True))


def _step(span: timedelta) -> str:
    """The step that makes a span some dozens of bars."""
    steps = (("second", timedelta(minutes=2)), ("minute", timedelta(hours=2)), ("hour", timedelta(days=5)))
    return next((step for step, upto in steps if span <= upto), "day")


def page(found: DeadLetters) -> str:
    """The report as markdown. Names come from reports, that is, from anybody: they are shown as text, whatever is in them."""
    when = f"{found.at:%Y-%m-%d %H:%M} UTC"
    waiting = f" {found.pending} more are decided, and wait for their dead letter to be acknowledged." if found.pending else ""
    if not found.dead:
        return f"### Nothing is dead\n\n{when}.{waiting}"
    rows = "\n".join(
        f"| {_text(group.topic)} | {_text(group.error_class)} | {_text(group.reason)} | {group.dead} | {group.attempts} "
        f"| {group.last:%Y-%m-%d %H:%M:%S} | {_text(group.example)} |"
        for group in found.groups
    )
    shown = sum(group.dead for group in found.groups)
    rest = f"\n\nAnd {found.dead - shown} others, in smaller groups." if shown < found.dead else ""
    image = base64.b64encode(plots(found)).decode()
    return (
        f"### {found.dead} messages are dead\n\n{when}.{waiting}\n\n"
        f"| dead letter topic | error class | reason | dead | attempts, at most | last, UTC | for example |\n"
        f"|---|---|---|---:|---:|---|---|\n{rows}{rest}\n\n"
        f"![Dead letters by error class, topic, age, and over time](data:image/png;base64,{image})\n"
    )


def plots(found: DeadLetters) -> bytes:
    """Four plots in one picture, as PNG: by error class, by topic, by age, over time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), dpi=80, layout="constrained")
    (classes, topics), (ages, time) = figure.subplots(2, 2)
    _bars(classes, "by error class", found.by_class)
    _bars(topics, "by dead letter topic", found.by_topic)
    _bars(ages, "by age", found.by_age)
    time.bar(
        [since for since, _ in found.over_time],
        [dead for _, dead in found.over_time],
        width=_width(found.step),
        color="#b23a48",
        align="edge",
    )
    time.set_title(f"died, by {found.step} (UTC)", loc="left")
    time.tick_params(axis="x", labelrotation=30)
    for axes in (classes, topics, ages, time):
        axes.spines[["top", "right"]].set_visible(False)
    for axis in (classes.xaxis, topics.xaxis, ages.xaxis, time.yaxis):
        axis.get_major_locator().set_params(integer=True)
    FigureCanvasAgg(figure)
    image = io.BytesIO()
    with warnings.catch_warnings():
        # a letter that the font doesn't have is drawn as a box, and is in the table
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(image, format="png")
    return image.getvalue()


def _bars(axes: Any, title: str, counts: Sequence[tuple[str, int]]) -> None:
    places = range(len(counts))
    bars = axes.barh(places, [count for _, count in counts], color="#b23a48")
    axes.bar_label(bars, padding=3)
    axes.margins(x=0.12)
    # without parse_math, a class like `a$b$c` would be read as a formula
    axes.set_yticks(places, [_short(name) for name, _ in counts], parse_math=False)
    # from the top down
    axes.set_ylim(max(len(counts), _ROOM) - 0.5, -0.5)
    axes.set_title(title, loc="left")


def _width(step: str) -> timedelta:
    return timedelta(**{f"{step}s": 1})


def _short(name: str) -> str:
    plain = _printable(name)
    return plain if len(plain) <= _LETTERS else f"…{plain[1 - _LETTERS :]}"


def _text(name: str) -> str:
    """A name in a cell of a table: nothing in it is markdown or HTML."""
    return re.sub(r"([^\w\s])", lambda match: f"&#{ord(match[1])};", _printable(name))


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in name)


def _utc(moment: datetime | None) -> datetime | None:
    return moment.astimezone(UTC) if moment else None
