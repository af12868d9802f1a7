"""The list of a command: selects the deliveries when the command is given, keeps lists of dry runs, and sums lists up."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.operators.commands import CommandError, CommandRequest
from orchestration.operators.selections import Selection, literal_text

if TYPE_CHECKING:
    from orchestration.operators.dead_letters import DeadLetters
    from orchestration.rules.routing import Redrive, Routing
    from orchestration.rules.rulebook import Rulebook

MOST = 1_000_000
"""The longest list of one command, the same as in the model command_records."""

# The largest part of a list, in bytes. By default Kafka takes records of up to a megabyte.
_PART_BYTES = 256 * 1024

# Of how many messages a question names the ids.
_ASKED = 1_000

# The commands that are about waiting messages.
WAITING = ("send_now", "cancel")

BY_RULES = "redrive_rules"
"""The name, in place of a person's, in commands by the rules: redrive_rules, and purge_after of routes."""

# Why a redrive would be refused, by the reason of the decision.
_OBJECTIONS = {
    "no_original_topic": "refused: no original topic is known",
    "no_route": "refused: no route",
    "destination_not_legal": "refused: Kafka allows no such name",
    "destination_is_a_source": "refused: a source reads it",
    "destination_is_internal": "refused: an internal topic",
}

_IDS_ALONE = "decided when it is sent: a kept list has no topics"

_AGES = {"up to an hour": 1, "up to a day": 24, "up to a week": 168, "older": None}


@dataclass(frozen=True, slots=True)
class Target:
    """One message of a list, with the delivery that the command is about. due_ms: due time of the delivery, in epoch milliseconds."""

    message_id: str
    delivery_id: str
    due_ms: int
    original_topic: str | None = None
    consumer_group: str | None = None
    error_class: str | None = None
    error_kind: str | None = None
    since: datetime | None = None
    state: str | None = None
    """The state when it was selected: a redrive decides the report of a `refused` message anew. None in a list that was kept."""


# ---------- which deliveries


def select_deliveries(
    dead: DeadLetters, what: str, selection: Selection, most: int | None = None, *, with_followers: bool = False
) -> list[Target]:
    """Selects the deliveries that a command is about, by due time: of dead and refused messages, or of waiting ones.

    most: the most to select. with_followers: also the messages that are dead only because of a selected one; the list then has the
    messages of each partition in the order of their offsets, which is that of their sequences.
    Raises CommandError if there are more than a list may have.
    """
    place = "original_topic, original_partition, original_offset"
    fields = f"message_id, delivery_id, due_at, consumer_group, error_class, error_kind, state, {place}"
    # for each the latest due time of its partition up to it: by due time, but never out of turn
    turn = "unix_millis(due_at)"
    if with_followers:
        turn = f"max({turn}) over (partition by consumer_group, original_topic, original_partition order by original_offset)"
    if what in WAITING:
        states = "('waiting')" if what == "send_now" else "('waiting', 'held')"
        chosen = f"""
            select {fields}, last_failed_at as since
            from messages where state in {states} and {selection.condition(since_column="last_failed_at")}
        """
    else:
        chosen = f"""
            select {fields}, dead_at as since
            from stranded_messages where {followed(selection) if with_followers else selection.condition()}
        """
    rows = dead.rows(
        f"""
        select * except (due_at, original_partition, original_offset, turn), unix_millis(due_at) as due_ms
        from (select *, {turn} as turn from ({chosen}))
        order by turn, {place}, delivery_id
        limit {min(most or MOST + 1, MOST + 1):d}
        """
    )
    if len(rows) > MOST:
        raise CommandError(f"more than {MOST:,} messages are selected: select fewer, or give --max {MOST}")
    return [Target(**row) for row in rows]


def followed(selection: Selection) -> str:
    """The condition for the selected dead letters, and for open ones that are dead only because of one of them."""
    chosen = f"select message_id from stranded_messages where {selection.condition()}"
    because = f"message_id in (select message_id from followers where state = 'dead' and failed_message in ({chosen}))"
    return f"({selection.condition()} or (state = 'open' and {because}))"


def not_taken_along(dead: DeadLetters, targets: Sequence[Target]) -> int | None:
    """How many messages are dead only because of one of these, and are none of these themselves; None if there are too many to ask."""
    if len(targets) > _ASKED:
        return None
    ids = ", ".join(literal_text(one.message_id) for one in targets)
    because = f"state = 'dead' and failed_message in ({ids}) and message_id not in ({ids})"
    (row,) = dead.rows(f"select count(*) as left from followers where {because}")
    return int(row["left"])


def triage(dead: DeadLetters) -> list[tuple[CommandRequest, list[Target]]]:
    """What the rules ask for now, a command for each rule: the dead letters to send again, and those to discard and to purge.

    At most MOST of each: the rest follows the next time.
    """
    columns = (
        "message_id, delivery_id, original_topic, consumer_group, error_class, error_kind, dead_at as since, unix_millis(due_at) as due_ms"
    )
    again = dead.rows(f"select rule, why, {columns} from dead_letters_to_redrive order by rule, due_ms, delivery_id limit {MOST}")
    old = dead.rows(f"select what, {columns} from dead_letters_to_purge order by what, due_ms, delivery_id limit {MOST}")
    wanted: dict[tuple[str, str], list[Target]] = {}
    for row in again:
        wanted.setdefault(("redrive", f"{row.pop('rule')}: {row.pop('why')}"), []).append(Target(**row))
    sent_again = {row["delivery_id"] for row in again}
    for row in old:
        if row["delivery_id"] not in sent_again:
            wanted.setdefault((row.pop("what"), "kept for as long as its route says (purge_after)"), []).append(Target(**row))
    return [(CommandRequest(what, reason, BY_RULES), listed) for (what, reason), listed in wanted.items()]


# ---------- a list that is kept


def digest(listed: Sequence[Target]) -> str:
    """The digest of a list, which the closing record has."""
    return digest_of_parts(part_digest(part) for part in parts_of(listed))


def keep(home: Path, listed: Sequence[Target]) -> str:
    """Stores a list, so that exactly this one can be sent later; returns its name."""
    name = digest(listed)[:12]
    directory = home / "lists"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps([one.message_id, one.delivery_id, one.due_ms], ensure_ascii=False) + "\n" for one in listed)
    return name


def kept(home: Path, name: str) -> list[Target]:
    """A list that was stored. Raises CommandError if it doesn't exist, or was changed."""
    path = home / "lists" / f"{name}.jsonl"
    if not re.fullmatch(r"[0-9a-f]{12}", name) or not path.exists():
        raise CommandError(f"--list {name!r}: there is no such list; --dry-run prints the name of its list")
    try:
        with path.open(encoding="utf-8") as file:
            listed = [Target(*json.loads(line)) for line in file]
        changed = digest(listed)[:12] != name
    except (ValueError, TypeError):
        changed = True
    if changed:
        raise CommandError(f"--list {name}: {path} was changed since it was written")
    return listed


# ---------- in parts, one for each record of the command


def parts_of(listed: Sequence[Target]) -> Iterator[list[Target]]:
    part: list[Target] = []
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


def part_digest(part: Sequence[Target]) -> str:
    return _sha256("\n".join(f"{one.delivery_id} {one.due_ms}" for one in part))


def digest_of_parts(parts: Iterable[str]) -> str:
    return _sha256("\n".join(parts))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ---------- shown before it is done


def shown(
    rulebook: Callable[[], Rulebook], request: CommandRequest, listed: Sequence[Target], now: datetime
) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Summary of a list: how many messages, by topic, by class, by age, and by destination of a redrive; the most frequent first.

    rulebook: makes the Rulebook, which may take seconds; only called for a redrive.
    """
    yield "messages", [(request.what, len(listed))]
    yield "topic", Counter(one.original_topic or "-" for one in listed).most_common(20)
    yield "error", Counter(one.error_class or "-" for one in listed).most_common(20)
    ages = Counter(_age(one.since, now) for one in listed)
    yield "age", [(age, ages[age]) for age in (*_AGES, "unknown") if ages[age]]
    if request.what == "redrive":
        yield "would go to", destinations(rulebook, listed, request.to).most_common(20)


def _age(since: datetime | None, now: datetime) -> str:
    if since is None:
        return "unknown"
    hours = (now - since.astimezone(UTC)).total_seconds() / 3600
    return next(age for age, most in _AGES.items() if most is None or hours <= most)


def destinations(rules: Callable[[], Routing | Rulebook], listed: Sequence[Target], to: str | None) -> Counter[str]:
    """Where the messages of a redrive would go: how many by topic, or by the reason of a refusal.

    rules: makes the Routing or Rulebook, which may take seconds; only called if it is needed.
    """
    found: Counter[str] = Counter()
    asked: Counter[Redrive] = Counter()
    for one in listed:
        if one.state == "refused":
            found["decided anew" if to in (None, "retry") else "refused: --to is for dead letters"] += 1
        elif one.original_topic is None:
            unknown = _IDS_ALONE if one.state is None else _OBJECTIONS["no_original_topic"]
            found[str(to) if to not in (None, "retry", "original") else unknown] += 1
        else:
            asked[one.original_topic, one.consumer_group, one.error_kind] += 1
    if asked:
        for kind, (topic, objection) in rules().redrives(list(asked), to).items():
            found[str(topic) if objection is None else _OBJECTIONS.get(objection, f"refused: {objection}")] += asked[kind]
    return found
