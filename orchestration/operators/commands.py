"""What an operator's command sends: a frozen list of deliveries, in parts, closed by a record that says what is to be done with them.

All records go to one partition of the commands topic in one transaction, so that the loop sees the whole list or nothing; count and
digest tell it so where there are no transactions. What they mean is read in SQL: models/commands/command_records.sql.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from orchestration.clock import parse_duration, parse_moment
from orchestration.kafka.cluster import Cluster
from orchestration.operators.dead_letters import DeadLetters, Selection
from orchestration.rules.check import route_for
from orchestration.rules.seeds import Seeds, is_source, topic_from_template
from orchestration.settings import Settings, rejected
from publisher import RejectedPropertiesError, kafka_error, make_client, redact

MOST = 1_000_000
"""The longest list of one command. The model command_records knows it, too."""

# A part of a list is at most so large; a record may be a megabyte by default.
_PART_BYTES = 256 * 1024

# Seconds to wait for the brokers.
_PATIENCE = 30

_PER = {"s": 1, "m": 60, "h": 3600}

WAITING = ("send_now", "cancel")

BY_RULES = "redrive_rules"
"""Who gives the commands that the redrive rules ask for."""

Told = Callable[[int, int], None]
"""Hears how far something is: so much is done, of so much."""


class CommandError(Exception):
    """The command can't be given: what is wrong, and what to do. Nothing was sent."""

    exit_code = 2


@dataclass(frozen=True)
class Wish:
    """What is to be done, by whom, why and how. of: the command that a pause, resume or stop is about."""

    what: str
    reason: str
    who: str
    ticket: str | None = None
    rate: float | None = None
    at: datetime | None = None
    canary: int | None = None
    assume_after: timedelta | None = None
    to: str | None = None
    of: str | None = None

    def said(self) -> dict[str, object]:
        """As the closing record says it."""
        words = {
            "what": self.what,
            "who": self.who,
            "reason": self.reason,
            "ticket": self.ticket,
            "rate": None if self.rate is None else f"{self.rate:.9f}".rstrip("0").rstrip("."),
            "at": None if self.at is None else round(self.at.timestamp() * 1000),
            "canary": self.canary,
            "assume_after": None if self.assume_after is None else round(self.assume_after.total_seconds() * 1000),
            "to": self.to,
            "of": self.of,
        }
        return {word: value for word, value in words.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Listed:
    """One message of a list, by the delivery that the command is about; due_ms: when that was due, epoch milliseconds."""

    message_id: str
    delivery_id: str
    due_ms: int
    original_topic: str | None = None
    consumer_group: str | None = None
    error_class: str | None = None
    error_kind: str | None = None
    since: datetime | None = None
    state: str | None = None
    """Of a list that was selected: `refused` where the report is told again."""


# ---------- what is meant


def parse_rate(text: str) -> float:
    """Messages a second: of `50/s`, `10/m`, `1/h`. Raises CommandError."""
    said = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)/([smh])", text.strip())
    rate = float(said[1]) / _PER[said[2]] if said else 0.0
    if rate < 1e-6:
        raise CommandError(f"--rate {text!r} is no rate: 50/s, 10/m, 1/h")
    return rate


def parse_assume_after(text: str) -> timedelta:
    """A duration: of `500ms`, `90s`, `5m`, `2h`, `1d`. Raises CommandError."""
    try:
        return parse_duration(text)
    except ValueError:
        raise CommandError(f"--assume-after {text!r} is no time: 90s, 5m, 2h") from None


def parse_at(text: str) -> datetime:
    """A moment: ISO 8601, in UTC unless it has a zone. Raises CommandError."""
    try:
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise CommandError(f"--at {text!r} is no time: 2026-03-01T12:00") from None


def check_wish(settings: Settings, seeds: Seeds, wish: Wish) -> None:
    """Whether anything could come of it. Raises CommandError."""
    if not wish.reason.strip():
        raise CommandError("--reason must say something: it is what others read later")
    if not settings.commands_topic:
        raise CommandError("commands_topic (REDRIVE_COMMANDS_TOPIC) is empty: no commands are obeyed")
    if wish.canary is not None and wish.canary < 1:
        raise CommandError("--canary must be 1 or more")
    if wish.of is not None and not re.fullmatch(r"[0-9a-f-]{36}", wish.of):
        raise CommandError(f"{wish.of!r} is no id of a command: `select command, state from redrives` shows them")
    if wish.to in (None, "retry", "original"):
        return
    assert wish.to is not None
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", wish.to):
        raise CommandError(f"--to {wish.to!r}: retry, original, or the name of a topic")
    if settings.is_internal(wish.to):
        raise CommandError(
            f"--to {wish.to}: it is an internal topic, and no message is sent there (docs/configuration.md, protected_topics)"
        )
    if is_source(seeds, wish.to):
        raise CommandError(f"--to {wish.to}: it is read by redrive itself, and what is sent there would come back")


# ---------- whom it is about


def select_deliveries(dead: DeadLetters, what: str, selection: Selection, most: int | None) -> list[Listed]:
    """The deliveries that a command is about, those that were due first in front: of what is dead or was refused, or of what waits.

    most: only so many of them. Raises CommandError if there are more than a list may have.
    """
    if what in WAITING:
        states = "('waiting')" if what == "send_now" else "('waiting', 'held')"
        chosen = f"""
            select message_id, delivery_id, due_at, original_topic, consumer_group, error_class, error_kind, last_failed_at as since, state
            from messages where state in {states} and {selection.condition(since_column="last_failed_at")}
        """
    else:
        chosen = f"""
            select message_id, delivery_id, due_at, original_topic, consumer_group, error_class, error_kind, dead_at as since, state
            from stranded_messages where {selection.condition()}
        """
    rows = dead.rows(
        f"""
        select * except (due_at), unix_millis(due_at) as due_ms from ({chosen})
        order by due_ms, delivery_id
        limit {min(most or MOST + 1, MOST + 1):d}
        """
    )
    if len(rows) > MOST:
        raise CommandError(f"these are more than {MOST:,}: choose fewer, or say --max {MOST}")
    return [Listed(**row) for row in rows]


def triage(dead: DeadLetters) -> list[tuple[Wish, list[Listed]]]:
    """What the redrive rules want sent again by now, a command for each rule. Of very many the first: the rest is for the next time."""
    rows = dead.rows(
        f"""
        select
            rule, why, message_id, delivery_id, original_topic, consumer_group, error_class, error_kind, dead_at as since,
            unix_millis(due_at) as due_ms
        from dead_letters_to_redrive
        order by rule, due_ms, delivery_id
        limit {MOST}
        """
    )
    by_rule: dict[tuple[str, str], list[Listed]] = {}
    for row in rows:
        by_rule.setdefault((row.pop("rule"), row.pop("why")), []).append(Listed(**row))
    return [(Wish("redrive", f"{rule}: {why}", BY_RULES), listed) for (rule, why), listed in by_rule.items()]


def destinations(settings: Settings, seeds: Seeds, listed: Sequence[Listed], to: str | None) -> Counter[str]:
    """Where the messages of a redrive would go, by today's seeds: how many by topic, or by why they would be refused."""
    found: Counter[str] = Counter()
    known: dict[tuple[str | None, ...], str] = {}
    for one in listed:
        kind = (one.original_topic, one.consumer_group, one.error_kind, one.state)
        if kind not in known:
            known[kind] = _destination(settings, seeds, one, to)
        found[known[kind]] += 1
    return found


def _destination(settings: Settings, seeds: Seeds, one: Listed, to: str | None) -> str:
    if one.state == "refused":
        return "decided anew" if to in (None, "retry") else "refused: --to is for dead letters"
    if to not in (None, "retry", "original"):
        return str(to)
    if one.original_topic is None or is_source(seeds, one.original_topic):
        return "refused: no original topic is known"
    topic = one.original_topic
    if to != "original":
        route = route_for(seeds, one.original_topic, one.consumer_group, one.error_kind)
        if route is None:
            return "refused: no route"
        if one.consumer_group is not None or "{group}" not in route["retry_topic"]:
            topic = topic_from_template(route["retry_topic"], one.original_topic, one.consumer_group, one.error_kind)
    if settings.is_internal(topic):
        return "refused: an internal topic"
    return "refused: a source reads it" if is_source(seeds, topic) else topic


# ---------- a list that is kept


def digest(listed: Sequence[Listed]) -> str:
    """Tells lists apart: what the closing record says of one."""
    return _digest(_part_digest(part) for part in _parts(listed))


def keep(home: Path, listed: Sequence[Listed]) -> str:
    """Writes a list down, so that just this one can be sent later; returns its name."""
    name = digest(listed)[:12]
    directory = home / "lists"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps([one.message_id, one.delivery_id, one.due_ms], ensure_ascii=False) + "\n" for one in listed)
    return name


def kept(home: Path, name: str) -> list[Listed]:
    """A list that was written down. Raises CommandError if it isn't there, or was changed."""
    path = home / "lists" / f"{name}.jsonl"
    if not re.fullmatch(r"[0-9a-f]{12}", name) or not path.exists():
        raise CommandError(f"--list {name!r}: there is no such list; --dry-run says the name of the one that it shows")
    try:
        with path.open(encoding="utf-8") as file:
            listed = [Listed(*json.loads(line)) for line in file]
        changed = digest(listed)[:12] != name
    except (ValueError, TypeError):
        changed = True
    if changed:
        raise CommandError(f"--list {name}: {path} was changed since it was written")
    return listed


# ---------- how it is sent


def send(settings: Settings, wish: Wish, listed: Sequence[Listed] = (), told: Told = lambda done, of: None) -> str:
    """Gives a command; returns its id. told: hears how many of its records are written.

    Raises CommandError, ClusterError: then nothing was sent that anybody acts upon.
    """
    command = str(uuid.uuid4())
    cluster = Cluster(settings.kafka_properties)
    if settings.commands_topic not in cluster.topic_names():
        raise CommandError(f"the topic {settings.commands_topic} is missing: `redrive check --create` makes it")
    write(settings, command, records(wish, listed), told)
    return command


def records(wish: Wish, listed: Sequence[Listed] = ()) -> list[bytes]:
    """The values of a command's records, in their order."""
    parts = list(_parts(listed))
    values: list[Mapping[str, object]] = [
        {"format": 1, "part": number, "deliveries": [[one.delivery_id, one.due_ms] for one in part]} for number, part in enumerate(parts)
    ]
    closing = {"format": 1, "closed": True, "count": len(listed), **wish.said()}
    if parts:
        closing["digest"] = _digest(map(_part_digest, parts))
    return [json.dumps(value, ensure_ascii=False).encode() for value in (*values, closing)]


def write(settings: Settings, command: str, values: Sequence[bytes], told: Told = lambda done, of: None) -> None:
    """Writes records of a command, all or none. Raises CommandError."""
    problems: list[str] = []
    written = 0

    def report(error: KafkaError | None, _: Message) -> None:
        nonlocal written
        if error is not None:
            problems.append(error.str())
        written += 1
        told(written, len(values))

    said: dict[str, Any] = {**settings.kafka_properties, "enable.idempotence": True, "message.timeout.ms": _PATIENCE * 1000}
    if settings.transactions:
        said["transactional.id"] = f"{settings.transactional_prefix}.{settings.instance}.command-{command}"
    try:
        producer = make_client(Producer, said, settings.kafka_properties)
        if settings.transactions:
            producer.init_transactions(_PATIENCE)
            producer.begin_transaction()
        for value in values:
            # in one partition, so that what is said later about a command is read later
            producer.produce(settings.commands_topic, value, command, 0, on_delivery=report)
            producer.poll(0)
        left = producer.flush(_PATIENCE)
        if problems or left:
            why = redact(problems[0], settings.kafka_properties) if problems else f"no answer within {_PATIENCE} s"
            raise CommandError(f"{settings.commands_topic}: {why}")
        if settings.transactions:
            producer.commit_transaction(_PATIENCE)
    except RejectedPropertiesError as error:
        raise rejected(error) from None
    except KafkaException as error:
        # not with its cause, whose text may have a part of a secret in it
        raise CommandError(f"{settings.commands_topic}: {redact(kafka_error(error).str(), settings.kafka_properties)}") from None


def _parts(listed: Sequence[Listed]) -> Iterator[list[Listed]]:
    part: list[Listed] = []
    size = 0
    for one in listed:
        length = len(one.delivery_id.encode()) + 24
        if part and size + length > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield part


def _part_digest(part: Sequence[Listed]) -> str:
    return _sha256("\n".join(f"{one.delivery_id} {one.due_ms}" for one in part))


def _digest(parts: Iterable[str]) -> str:
    return _sha256("\n".join(parts))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ---------- shown before it is done


def shown(
    settings: Settings, seeds: Seeds, wish: Wish, listed: Sequence[Listed], now: datetime
) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """What a list is made of: how many, by topic, by class, by age, and where a redrive would go; each the most frequent first."""
    yield "messages", [(wish.what, len(listed))]
    yield "topic", Counter(one.original_topic or "-" for one in listed).most_common(20)
    yield "error", Counter(one.error_class or "-" for one in listed).most_common(20)
    ages = Counter(_age(one.since, now) for one in listed)
    yield "age", [(age, ages[age]) for age in (*_AGES, "unknown") if ages[age]]
    if wish.what == "redrive":
        yield "would go to", destinations(settings, seeds, listed, wish.to).most_common(20)


_AGES = {"up to an hour": 1, "up to a day": 24, "up to a week": 168, "older": None}


def _age(since: datetime | None, now: datetime) -> str:
    if since is None:
        return "unknown"
    hours = (now - since.astimezone(UTC)).total_seconds() / 3600
    return next(age for age, most in _AGES.items() if most is None or hours <= most)
