"""The report: what is dead, and how retries go; read with a few grouped statements, shown as one page of markdown with its plots inside."""

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
from orchestration.tables.query import first_of

# What the report is about.
_OPEN = "dead_letters where state = 'open'"
# How many error classes and topics are shown by name.
_SHOWN = 12
# The longest name beside a bar, in characters.
_LETTERS = 44
# For how long an unusual hour stays on the page.
_UNUSUAL_SINCE = timedelta(days=1)
# The period that the summary of retries covers.
_RETRIES_SINCE = timedelta(days=1)
# A plot has room for at least this many bars: otherwise a single bar would fill it.
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
    """Open dead letters with the same cause. pattern: the top frame of their stack, or what their error messages have in common."""

    topics: tuple[str, ...]
    error_class: str
    pattern: str
    open: int
    last: datetime
    example: str


@dataclass(frozen=True)
class Unusual:
    """An hour in which more of a topic's messages died than is usual there."""

    topic: str
    hour: datetime
    died: int
    usual: float


@dataclass(frozen=True)
class Retries:
    """The retries of the period: how many were sent, and how late; how many messages recovered, and how long after their first failure."""

    sent: int
    late_p50_ms: int | None
    late_p99_ms: int | None
    recovered: int
    recovery_p50_ms: int | None
    by_hour: tuple[tuple[datetime, int], ...]


@dataclass(frozen=True)
class Report:
    """How many messages have an open dead letter, are dead, have ever died, or wait for their dead letter (pending), at the time `at`.

    The other counts are of open dead letters. over_time counts them by when they died, with the beginning of each `step`.
    """

    at: datetime
    open: int
    dead: int
    died: int
    pending: int
    oldest: datetime | None
    groups: tuple[Group, ...]
    unusual: tuple[Unusual, ...]
    by_class: tuple[tuple[str, int], ...]
    by_topic: tuple[tuple[str, int], ...]
    by_age: tuple[tuple[str, int], ...]
    over_time: tuple[tuple[datetime, int], ...]
    step: str
    retries: Retries


def read_report(query: Query, now: datetime) -> Report:
    """Reads the marts about dead letters, `attempts` and `messages`. now: the time that ages are counted to."""
    (total,) = query(
        """
        select
            count_if(state = 'open') as open, count_if(state = 'open' or (state = 'discarded' and life_cycle = life_cycles)) as dead,
            count(*) as died,
            min(case when state = 'open' then dead_at end) as oldest, max(case when state = 'open' then dead_at end) as newest
        from dead_letters
        """
    )
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
    over_time = query(f"select date_trunc('{step}', dead_at) as since, count(*) as open from {_OPEN} group by all order by since")
    return Report(
        at=now,
        open=int(total["open"]),
        dead=int(total["dead"]),
        died=int(total["died"]),
        pending=int(pending["n"]),
        oldest=oldest,
        groups=tuple(
            Group(
                topics=tuple(row["topics"]),
                error_class=row["error_class"],
                pattern=row["error_pattern"],
                open=int(row["open"]),
                last=row["last_seen"],
                example=row["sample_message_id"],
            )
            for row in groups
        ),
        unusual=unusual,
        by_class=_counted(query, "coalesce(error_class, '(none)')"),
        by_topic=_counted(query, "coalesce(topic, 'none: parked')"),
        by_age=_by_age(query, now),
        over_time=tuple((row["since"], int(row["open"])) for row in over_time),
        step=step,
        retries=_retries(query, now - _RETRIES_SINCE),
    )


def _retries(query: Query, since: datetime) -> Retries:
    began = literal(since)
    sent = f"attempts where decision = 'retry' and sent_at >= {began}"
    (late,) = query(
        f"""
        select count(*) as sent, percentile_approx(lateness_ms, 0.5) as p50, percentile_approx(lateness_ms, 0.99) as p99
        from {sent}
        """
    )
    (recovered,) = query(
        f"""
        select count(*) as messages, percentile_approx(unix_millis(recovered_at) - unix_millis(first_failed_at), 0.5) as p50
        from messages
        where recovered_at >= {began}
        """
    )
    by_hour = query(f"select date_trunc('hour', sent_at) as hour, count(*) as sent from {sent} group by all order by hour")
    return Retries(
        sent=int(late["sent"]),
        late_p50_ms=late["p50"],
        late_p99_ms=late["p99"],
        recovered=int(recovered["messages"]),
        recovery_p50_ms=recovered["p50"],
        by_hour=tuple((row["hour"], int(row["sent"])) for row in by_hour),
    )


def read_unusual(query: Query, since: datetime) -> tuple[Unusual, ...]:
    """The hours of topics since a moment, in which more died than is usual there; the latest first."""
    rows = query(
        f"""
        select original_topic, hour, died, usual
        from dead_letter_rate
        where is_unusual and hour >= {literal(since)}
        order by hour desc, died desc, original_topic
        limit {_SHOWN}
        """
    )
    return tuple(Unusual(row["original_topic"], row["hour"], int(row["died"]), float(row["usual"])) for row in rows)


def _counted(query: Query, what: str) -> tuple[tuple[str, int], ...]:
    rows = query(f"select {what} as what, count(*) as open from {_OPEN} group by all order by open desc, what limit {_SHOWN}")
    return tuple((row["what"], int(row["open"])) for row in rows)


def _by_age(query: Query, now: datetime) -> tuple[tuple[str, int], ...]:
    moments = [literal(now - age) for _, age in _AGES]
    younger = ", ".join(f"count_if(dead_at > {moment}) as n{number}" for number, moment in enumerate(moments))
    (row,) = query(f"select {younger}, count(*) as n{len(_AGES)} from {_OPEN}")
    names = [*(f"under {name}" for name, _ in _AGES), "older"]
    counts = [int(row[f"n{number}"]) for number in range(len(names))]
    return tuple(zip(names, (count - before for count, before in zip(counts, [0, *counts], strict=False)), strict=True))


def _step(span: timedelta) -> str:
    """The step that divides a span into some dozens of bars."""
    steps = (("second", timedelta(minutes=2)), ("minute", timedelta(hours=2)), ("hour", timedelta(days=5)))
    return next((step for step, upto in steps if span <= upto), "day")


def page(found: Report) -> str:
    """The report as markdown. Names come from reports, so they are escaped: any markup in them is shown as text."""
    waiting = f" {found.pending} more are decided, and wait for their dead letter to be acknowledged." if found.pending else ""
    title = f"Open dead letters: {found.open}"
    counted = f"{found.at:%Y-%m-%d %H:%M} UTC. Messages that are dead: {found.dead}; that have ever died: {found.died}.{waiting}"
    parts = [f"### {title}", f"{counted}{_unusual(found.unusual)}"]
    if found.groups:
        parts.append(_groups(found))
    parts.append(_about_retries(found.retries))
    if image := plots(found):
        parts.append(f"![What is dead, and what was sent again](data:image/png;base64,{base64.b64encode(image).decode()})")
    return "\n\n".join(parts) + "\n"


def _groups(found: Report) -> str:
    rows = "\n".join(
        f"| {_text(first_of(group.topics))} | {_text(group.error_class)} | {_text(group.pattern)} | {group.open} "
        f"| {group.last:%Y-%m-%d %H:%M:%S} | {_text(group.example)} |"
        for group in found.groups
    )
    shown = sum(group.open for group in found.groups)
    rest = f"\n\nAnd {found.open - shown} others, in smaller groups." if shown < found.open else ""
    return f"| topic | error class | pattern | open | last, UTC | for example |\n|---|---|---|---:|---|---|\n{rows}{rest}"


def _about_retries(retries: Retries) -> str:
    """A paragraph: how many retries were sent in the last 24 hours, how late, and how many messages recovered."""
    if not retries.sent and not retries.recovered:
        return "**Retries:** none was sent in the last 24 hours."
    late = f", with a median lateness of {_span(retries.late_p50_ms)} (p99: {_span(retries.late_p99_ms)})" if retries.sent else ""
    took = f", half of them within {_span(retries.recovery_p50_ms)} of their first failure" if retries.recovered else ""
    return (
        f"**Retries:** {retries.sent} were sent in the last 24 hours{late}. {retries.recovered} messages recovered{took}; this is "
        "known only for groups that commit offsets."
    )


def _span(milliseconds: int | None) -> str:
    """A span of time for people."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _unusual(hours: Sequence[Unusual]) -> str:
    """A line for each unusual hour; nothing where there is none."""
    return "".join(
        f"\n\n**Unusual:** {hour.died} messages of {_text(hour.topic)} died in the hour from {hour.hour:%Y-%m-%d %H:%M}; "
        f"{hour.usual:g} is usual."
        for hour in hours
    )


def plots(found: Report) -> bytes:
    """A picture as PNG, of open dead letters by error class, topic, age and over time, and of what was sent again by hour.

    Plots without data are left out; empty if there is no data at all.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn: list[Callable[[Any], None]] = []
    if found.open:
        drawn += [
            lambda axes: _bars(axes, "open, by error class", found.by_class),
            lambda axes: _bars(axes, "open, by dead letter topic", found.by_topic),
            lambda axes: _bars(axes, "open, by age", found.by_age),
            lambda axes: _over_time(axes, f"open, by {found.step} of death (UTC)", found.over_time, found.step),
        ]
    if found.retries.by_hour:
        drawn.append(lambda axes: _over_time(axes, "sent again, by hour (UTC)", found.retries.by_hour, "hour", color="#2f6690"))
    if not drawn:
        return b""
    rows = -(-len(drawn) // 2)
    figure = Figure(figsize=(11, 3.25 * rows), dpi=80, layout="constrained")
    places = figure.subplots(rows, 2, squeeze=False).flat
    for draw, axes in zip(drawn, places, strict=False):
        draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in places:
        axes.remove()
    FigureCanvasAgg(figure)
    image = io.BytesIO()
    with warnings.catch_warnings():
        # a letter that the font doesn't have is drawn as a box; the table shows it
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(image, format="png")
    return image.getvalue()


def _over_time(axes: Any, title: str, counts: Sequence[tuple[datetime, int]], step: str, color: str = "#b23a48") -> None:
    axes.bar([since for since, _ in counts], [count for _, count in counts], width=_width(step), color=color, align="edge")
    axes.set_title(title, loc="left")
    axes.tick_params(axis="x", labelrotation=30)
    axes.yaxis.get_major_locator().set_params(integer=True)


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
    axes.xaxis.get_major_locator().set_params(integer=True)


def _width(step: str) -> timedelta:
    return timedelta(**{f"{step}s": 1})


def _short(name: str) -> str:
    plain = one_line(name)
    return plain if len(plain) <= _LETTERS else f"…{plain[1 - _LETTERS :]}"


def _text(name: str) -> str:
    """A name in a cell of a table: nothing in it is markdown or HTML."""
    return re.sub(r"([^\w\s]|_)", lambda match: f"&#{ord(match[1])};", one_line(name))
