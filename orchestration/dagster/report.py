"""The report on dead letters: read with a few grouped statements, shown as one page of markdown with its plots inside."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from orchestration.clock import literal
from orchestration.output import one_line
from orchestration.query import first_of

# What the report is about.
_OPEN = "dead_letters where state = 'open'"
# How many error classes and topics are shown by name.
_SHOWN = 12
# How much of a name fits beside a bar.
_LETTERS = 44
# For how long an unusual hour stays on the page.
_UNUSUAL_SINCE = timedelta(days=1)
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
    """Dead letters that died alike: pattern is the top frame of their stack, or what their messages have in common."""

    topics: tuple[str, ...]
    error_class: str
    pattern: str
    dead: int
    last: datetime
    example: str


@dataclass(frozen=True)
class Unusual:
    """An hour in which more of a topic's messages died than is usual there."""

    topic: str
    hour: datetime
    dead: int
    usual: float


@dataclass(frozen=True)
class DeadLetters:
    """What is dead at a moment, and open. by_age: dead since less than that; over_time: by the beginning of each `step`."""

    at: datetime
    dead: int
    pending: int
    oldest: datetime | None
    groups: tuple[Group, ...]
    unusual: tuple[Unusual, ...]
    by_class: tuple[tuple[str, int], ...]
    by_topic: tuple[tuple[str, int], ...]
    by_age: tuple[tuple[str, int], ...]
    over_time: tuple[tuple[datetime, int], ...]
    step: str


def read_dead_letters(query: Query, now: datetime) -> DeadLetters:
    """Reads the marts about dead letters, and `messages`. now: what ages are counted to."""
    (total,) = query(f"select count(*) as dead, min(dead_at) as oldest, max(dead_at) as newest from {_OPEN}")
    (pending,) = query("select count(*) as n from messages where state = 'dead_letter_pending'")
    groups = query(
        f"""
        select topics, coalesce(error_class, '(none)') as error_class, error_pattern, open, last_seen, sample_message_id
        from dead_letter_groups
        where open > 0
        order by open desc, last_seen desc, fingerprint
        limit {_SHOWN}
        """
    )
    unusual = read_unusual(query, now - _UNUSUAL_SINCE)
    oldest, newest = total["oldest"], total["newest"]
    step = _step(newest - oldest) if oldest and newest else "hour"
    over_time = query(f"select date_trunc('{step}', dead_at) as since, count(*) as dead from {_OPEN} group by all order by since")
    return DeadLetters(
        at=now,
        dead=int(total["dead"]),
        pending=int(pending["n"]),
        oldest=oldest,
        groups=tuple(
            Group(
                topics=tuple(row["topics"]),
                error_class=row["error_class"],
                pattern=row["error_pattern"],
                dead=int(row["open"]),
                last=row["last_seen"],
                example=row["sample_message_id"],
            )
            for row in groups
        ),
        unusual=unusual,
        by_class=_counted(query, "coalesce(error_class, '(none)')"),
        by_topic=_counted(query, "coalesce(topic, 'none: parked')"),
        by_age=_by_age(query, now),
        over_time=tuple((row["since"], int(row["dead"])) for row in over_time),
        step=step,
    )


def read_unusual(query: Query, since: datetime) -> tuple[Unusual, ...]:
    """The hours of topics since a moment, in which more died than is usual there; the latest first."""
    rows = query(
        f"""
        select original_topic, hour, dead, greatest(usual_of_the_day, usual_at_this_hour) as usual
        from dead_letter_rate
        where is_unusual and hour >= {literal(since)}
        order by hour desc, dead desc, original_topic
        limit {_SHOWN}
        """
    )
    return tuple(Unusual(row["original_topic"], row["hour"], int(row["dead"]), float(row["usual"])) for row in rows)


def _counted(query: Query, what: str) -> tuple[tuple[str, int], ...]:
    rows = query(f"select {what} as what, count(*) as dead from {_OPEN} group by all order by dead desc, what limit {_SHOWN}")
    return tuple((row["what"], int(row["dead"])) for row in rows)


def _by_age(query: Query, now: datetime) -> tuple[tuple[str, int], ...]:
    moments = [literal(now - age) for _, age in _AGES]
    younger = ", ".join(f"count_if(dead_at > {moment}) as n{number}" for number, moment in enumerate(moments))
    (row,) = query(f"select {younger}, count(*) as n{len(_AGES)} from {_OPEN}")
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
        return f"### Nothing is dead\n\n{when}.{waiting}{_unusual(found.unusual)}"
    rows = "\n".join(
        f"| {_text(first_of(group.topics))} | {_text(group.error_class)} | {_text(group.pattern)} | {group.dead} "
        f"| {group.last:%Y-%m-%d %H:%M:%S} | {_text(group.example)} |"
        for group in found.groups
    )
    shown = sum(group.dead for group in found.groups)
    rest = f"\n\nAnd {found.dead - shown} others, in smaller groups." if shown < found.dead else ""
    image = base64.b64encode(plots(found)).decode()
    return (
        f"### {found.dead} messages are dead\n\n{when}.{waiting}{_unusual(found.unusual)}\n\n"
        f"| topic | error class | where, or what they say | dead | last, UTC | for example |\n"
        f"|---|---|---|---:|---|---|\n{rows}{rest}\n\n"
        f"![Dead letters by error class, topic, age, and over time](data:image/png;base64,{image})\n"
    )


def _unusual(hours: Sequence[Unusual]) -> str:
    """A line for each unusual hour; nothing where there is none."""
    return "".join(
        f"\n\n**Unusual:** {hour.dead} of {_text(hour.topic)} died in the hour from {hour.hour:%Y-%m-%d %H:%M}; usual are {hour.usual:g}."
        for hour in hours
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
    plain = one_line(name)
    return plain if len(plain) <= _LETTERS else f"…{plain[1 - _LETTERS :]}"


def _text(name: str) -> str:
    """A name in a cell of a table: nothing in it is markdown or HTML."""
    return re.sub(r"([^\w\s])", lambda match: f"&#{ord(match[1])};", one_line(name))
