"""The seeds, read and checked as files: before anything is loaded, and with the place of what is wrong."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestration.clock import parse_duration
from orchestration.rules import patterns

DIALECTS = ("redrive", "spring")
PUBLISH_KINDS = ("retriable", "fatal", "poison", "backpressure", "quota", "fenced")
ERROR_KINDS = (*PUBLISH_KINDS, "blocking")
OTHER_KIND_WORDS = (
    *("NRE", "SLE", "SNBE", "SBE"),
    *("transient", "non-transient", "recoverable", "not recoverable", "unrecoverable"),
)
"""What other vocabularies call the kinds: the macro error_kinds says which is which."""
KIND_PRECEDENCE = ("fatal", "poison", "retriable", "quota", "backpressure", "fenced", "blocking")
"""Of rules that are equal but for their kind, which one decides: as the macro error_kinds has them."""
HEADER_PROFILES = ("dlq", "safi", "spring", "connect")
"""Which headers say on a dead letter why it died: a macro dead_letter_headers_<profile> each; `+stack` may follow."""
NO_TOPIC = "none"
"""What stands for a dead letter topic where messages that die are parked: as the macro no_topic has it."""
EVERYTHING = "everything"
"""The privacy that keeps and shows all, and needs no row."""
_SCOPES = ("record", "topic", "connection")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SET = re.compile(r"[A-Za-z0-9._-]+")
_LINK = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_LINK_PLACEHOLDERS = (
    *("message_id", "topic", "partition", "offset", "group", "class", "request_id", "process_id", "trace_id"),
    *("time", "time_ms", "from", "from_ms", "to", "to_ms"),
)
"""What may stand in a link's template: as the macro link_placeholders has them."""
_TEMPLATE = re.compile(r"([A-Za-z0-9._-]|\{topic\}|\{group\}|\{kind\})+")

Check = Callable[[str], str | None]


@dataclass(frozen=True)
class Row:
    """One row of a seed file: its values by column, and its line in the file."""

    line: int
    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]


@dataclass(frozen=True)
class Seeds:
    """All seeds by name, and a digest of their files: another digest means that they must be loaded again."""

    rows: Mapping[str, tuple[Row, ...]]
    digest: str


class SeedError(Exception):
    """The seeds can't be used: one line for each problem, with file, line, value, and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


def topic_matches(topic: str, pattern: str) -> bool:
    """Whether a topic is meant by a pattern of the seeds: as the macro of this name decides it."""
    if pattern == "*":
        return True
    if pattern.startswith("^"):
        return re.search(pattern, topic) is not None
    return topic == pattern


def is_source(seeds: Seeds, topic: str) -> bool:
    """Whether a source reads a topic."""
    return any(topic_matches(topic, source["topic"]) for source in seeds.rows["sources"])


def topic_from_template(template: str, topic: str, group: str | None, kind: str | None) -> str:
    """A destination's name from its template: as the macro of this name makes it."""
    for word, value in (("{topic}", topic), ("{group}", group), ("{kind}", kind)):
        template = template.replace(word, value or "")
    return template


def read_seeds(directory: Path) -> Seeds:
    """Reads and checks all seeds. Raises SeedError with every problem found, not only the first."""
    problems: list[str] = []
    rows: dict[str, tuple[Row, ...]] = {}
    digest = hashlib.sha256()
    for name, columns in _COLUMNS.items():
        path = directory / f"{name}.csv"
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            problems.append(f"{path}: is missing; without rows it is this line: {','.join(columns)}")
            continue
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path}: can't be read: {error}")
            continue
        digest.update(f"{name}\n{text}\n".encode())
        rows[name] = tuple(_read(path, text, columns, problems))
    if not problems:
        problems += _between(directory, rows)
    if problems:
        raise SeedError(problems)
    return Seeds(rows, digest.hexdigest())


def _read(path: Path, text: str, columns: Mapping[str, Check], problems: list[str]) -> Iterator[Row]:
    # as dbt reads it: a cell between quotes may hold line breaks, and only \n ends a line
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    optional = _DEFAULTS.get(path.stem, {})
    if len(set(header)) < len(header) or set(header) - optional.keys() != columns.keys() - optional.keys():
        allowed = ", ".join([name for name in columns if name not in optional] + [f"{name} (may be left out)" for name in optional])
        wrong = "; ".join(_column_names(header, columns, optional))
        problems.append(f"{path}:1: the columns are {', '.join(header) or 'none'}; they must be {allowed}: {wrong}")
        return
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            problems.append(f"{path}:{reader.line_num}: has {len(cells)} values, the header has {len(header)} columns")
            continue
        said = {column: cell.strip() for column, cell in zip(header, cells, strict=True) if cell.strip() or column not in optional}
        row = Row(reader.line_num, {**optional, **said})
        for column, value in said.items():
            if value.lower() == "null":
                problems.append(f"{path}:{row.line}: {column} is {value!r}: dbt takes this word for an empty cell; leave the cell empty")
        for column, check in columns.items():
            objection = check(row[column])
            if objection:
                problems.append(f"{path}:{row.line}: {column} is {row[column]!r}: {objection}")
        yield row


def _column_names(header: list[str], columns: Iterable[str], optional: Iterable[str]) -> Iterator[str]:
    """What is wrong with each name in the first line of a seed, and what is missing there."""
    for place, name in enumerate(header):
        if name in header[:place]:
            yield f"the column {name!r} stands twice"
        elif name not in columns and name.strip() in columns:
            yield f"the column {name!r} has blanks around its name: it must be {name.strip()!r}, as dbt takes them for a part of it"
        elif name not in columns:
            near = difflib.get_close_matches(name.strip().lower(), [*columns], n=1)
            yield f"there is no column {name!r}{f'; did you mean {near[0]!r}?' if near else ''}"
    written = {name.strip() for name in header}
    for name in columns:
        if name not in written and name not in optional:
            yield f"the column {name!r} is missing"


def _between(directory: Path, rows: Mapping[str, tuple[Row, ...]]) -> Iterator[str]:
    """What one row alone can't show: doubles, and references to rows that aren't there."""
    for name, keys in _KEYS.items():
        seen: dict[tuple[str, ...], int] = {}
        for row in rows[name]:
            key = tuple(row[column] for column in keys)
            if key in seen:
                yield f"{directory / name}.csv:{row.line}: {' and '.join(keys)} {' / '.join(key)} stand on line {seen[key]} already"
            seen.setdefault(key, row.line)
    policies = sorted(row["policy"] for row in rows["retry_policies"])
    for row in rows["routes"]:
        for column in ("retry_policy", "publish_policy"):
            if row[column] not in policies:
                yield (
                    f"{directory / 'routes.csv'}:{row.line}: {column} is {row[column]!r}: "
                    f"must be a policy of retry_policies.csv: {', '.join(policies) or 'it has none'}"
                )
    sets = {row["error_set"] for row in rows["error_sets"]}
    for row in rows["error_rules"]:
        where = f"{directory / 'error_rules.csv'}:{row.line}: error_class is {row['error_class']!r}"
        if not row["error_class"].startswith("@"):
            continue
        if row["error_class"][1:] not in sets:
            yield f"{where}: must be a set of error_sets.csv: {', '.join(f'@{name}' for name in sorted(sets)) or 'it has none'}"
        if row["message"] or row["code"] or row["header"]:
            yield f"{where}: a set has its own conditions; message, code and header must be empty"
    for row in rows["error_sets"]:
        if not any(row[column] for column in ("error_class", "message", "code", "header")):
            yield f"{directory / 'error_sets.csv'}:{row.line}: has no condition: it would hold for any error"
    privacies = sorted([EVERYTHING, *(row["name"] for row in rows["privacy"])])
    for row in rows["routes"]:
        if row["privacy"] not in privacies:
            yield (
                f"{directory / 'routes.csv'}:{row.line}: privacy is {row['privacy']!r}: must be one of privacy.csv: {', '.join(privacies)}"
            )
    for name, column in (("routes", "retry_topic"), ("routes", "dead_letter_topic"), ("dead_letter_topics", "dead_letter_topic")):
        for row in rows[name]:
            if "{" in row[column] or row[column] == NO_TOPIC:
                continue
            for source in rows["sources"]:
                if topic_matches(row[column], source["topic"]):
                    yield (
                        f"{directory / name}.csv:{row.line}: {column} is {row[column]!r}: that is read by the source "
                        f"{source['source']!r}; what is sent there would come back as a report"
                    )


def _text(value: str) -> str | None:
    return None if value else "must not be empty"


def _source_name(value: str) -> str | None:
    return "must not begin with @" if value.startswith("@") else _text(value)


def _anything(_: str) -> str | None:
    return None


def _one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def _adopted(value: str) -> str | None:
    return None if value in ("", "dead") else "must be dead, or empty for failures that are retried"


def _whole_number(least: int, most: int) -> Check:
    def check(value: str) -> str | None:
        allowed = f"must be a whole number from {least} to {most}"
        try:
            return None if least <= int(value) <= most else allowed
        except ValueError:
            return allowed

    return check


def _pattern(value: str) -> str | None:
    if not value:
        return "must not be empty"
    if value.startswith("^"):
        return patterns.objection(value)
    return None if _TOPIC.fullmatch(value) else "must be a topic's name, or a regular expression that begins with ^"


def _pattern_or_any(value: str) -> str | None:
    objection = None if value == "*" else _pattern(value)
    return f"{objection}, or * for any" if objection else None


def _fragment(value: str) -> str | None:
    return _pattern(value) if value.startswith("^") else None


def _class_or_any(value: str) -> str | None:
    if value.startswith("^"):
        return _pattern(value)
    return "must be a class's name, without blanks, or empty for any" if " " in value or value.startswith("@") else None


def _class(value: str) -> str | None:
    return _class_or_any(value) if value else "must not be empty"


def _header(value: str) -> str | None:
    name, _, wanted = value.partition("=")
    if value and not name:
        return "must be name=value, name=^regular expression, or a header's name alone"
    return _fragment(wanted)


def _denied(value: str) -> str | None:
    # names of headers are compared whatever their case
    expressions = (part for part in value.split() if part.startswith("^"))
    return next((problem for part in expressions if (problem := patterns.objection(part, ignore_case=True))), None)


def _privacy_name(value: str) -> str | None:
    return f"is the privacy that keeps all: call it otherwise than {EVERYTHING}" if value == EVERYTHING else _text(value)


def _kind(value: str) -> str | None:
    words = {word.lower() for word in (*ERROR_KINDS, *OTHER_KIND_WORDS)}
    return None if value.lower() in words else f"must be one of {', '.join(ERROR_KINDS)}; or {', '.join(OTHER_KIND_WORDS)}"


def _patterns(value: str) -> str | None:
    return next((problem for part in value.split() if (problem := _pattern(part))), None) if value else "must not be empty"


def _template(value: str) -> str | None:
    return None if _TEMPLATE.fullmatch(value) else "must be a topic's name, in which {topic}, {group} and {kind} may stand"


def _retry_topic(value: str) -> str | None:
    if value == NO_TOPIC:
        return f"only dead letters may go nowhere; for no retries at all, name a policy whose definition is {NO_TOPIC}"
    return _template(value)


def _dead_letter_topic(value: str) -> str | None:
    objection = _template(value)
    return f"{objection}, or {NO_TOPIC} for none" if objection else None


def _rule_class(value: str) -> str | None:
    return _set_name(value[1:]) if value.startswith("@") else _class_or_any(value)


def _set_name(value: str) -> str | None:
    return None if _SET.fullmatch(value) else "must be the name of a set: letters, digits, . _ and -"


def _link(value: str) -> str | None:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", value) if name not in _LINK_PLACEHOLDERS]
    if unknown:
        return f"knows no {{{unknown[0]}}}; placeholders are {', '.join(f'{{{name}}}' for name in _LINK_PLACEHOLDERS)}"
    return None if not value or _LINK.fullmatch(value) else "must be an address (https://...), without blanks"


def _duration(value: str) -> str | None:
    try:
        parse_duration(value)
    except ValueError:
        return "must be a duration, up to 365 days: 90s, 5m, 2h, 1d"
    return None


def _places(value: str) -> str | None:
    wrong = [place for place in value.split() if place.startswith("$") and not place.startswith(("$.", "$["))]
    return f"{wrong[0]} is no path: $.name, or $['name']; a header stands by its name" if wrong else None


_COLUMNS: dict[str, dict[str, Check]] = {
    "sources": {
        "source": _source_name,
        "topic": _pattern,
        "dialect": _one_of(*DIALECTS),
        "consumer_group": _anything,
        "speaks_for": _patterns,
        "start": _one_of("earliest", "latest"),
        "states_kind": _one_of("true", "false"),
        "adopt": _adopted,
    },
    "routes": {
        "topic": _pattern_or_any,
        "consumer_group": _text,
        "error_kind": _one_of("*", *ERROR_KINDS),
        "retry_policy": _text,
        "publish_policy": _text,
        "retry_topic": _retry_topic,
        "dead_letter_topic": _dead_letter_topic,
        "publish_charge": _one_of("record", "all"),
        "gate": _one_of("topic", "partition"),
        "dead_letter_headers": _one_of(*(f"{profile}{stack}" for profile in HEADER_PROFILES for stack in ("", "+stack"))),
        "privacy": _text,
        "owner": _anything,
        "runbook": _anything,
        "logs_url": _link,
        "trace_url": _link,
        "request_id": _places,
        "process_id": _places,
        "trace_id": _places,
    },
    "dead_letter_topics": {
        "error_class": _class,
        "topic": _pattern_or_any,
        "consumer_group": _text,
        "dead_letter_topic": _dead_letter_topic,
    },
    "redrive_rules": {
        "error_class": _class_or_any,
        "topic": _pattern_or_any,
        "consumer_group": _text,
        "max_lives": _whole_number(2, 1000),
        "delay": _duration,
        "why": _text,
    },
    "privacy": {
        "name": _privacy_name,
        "stack": _one_of("keep", "drop"),
        "message": _one_of("keep", "drop"),
        "payload": _one_of("keep", "hide", "drop"),
        "headers": _denied,
    },
    "retry_policies": {
        "policy": _text,
        "definition": _text,
    },
    "error_rules": {
        "error_class": _rule_class,
        "message": _fragment,
        "code": _anything,
        "header": _header,
        "kind": _kind,
        "source": _text,
        "topic": _pattern_or_any,
        "consumer_group": _text,
        "why": _anything,
    },
    "error_sets": {
        "error_set": _set_name,
        "error_class": _class_or_any,
        "message": _fragment,
        "code": _anything,
        "header": _header,
        "why": _anything,
    },
    "error_classes": {"error_class": _text, "parent": _text},
    "transparent_wrappers": {"error_class": _text, "why": _anything},
    "publish_error_kinds": {
        "code": _whole_number(-1000, 10_000),
        "name": _text,
        "error_kind": _one_of(*PUBLISH_KINDS),
        "scope": _one_of(*_SCOPES),
        "why": _anything,
        "also_called": _anything,
    },
}

_DEFAULTS: dict[str, dict[str, str]] = {
    "sources": {"adopt": ""},
    "publish_error_kinds": {"also_called": ""},
    "routes": {
        "publish_charge": "record",
        "gate": "topic",
        "dead_letter_headers": "dlq",
        "privacy": EVERYTHING,
        **dict.fromkeys(("owner", "runbook", "logs_url", "trace_url", "request_id", "process_id", "trace_id"), ""),
    },
}
"""The columns that a file may do without, and what holds then: as `defaults` in models/_seeds.yml has them."""

_KEYS: dict[str, tuple[str, ...]] = {
    "sources": ("source",),
    "routes": ("topic", "consumer_group", "error_kind"),
    "dead_letter_topics": ("error_class", "topic", "consumer_group"),
    "redrive_rules": ("error_class", "topic", "consumer_group"),
    "privacy": ("name",),
    "retry_policies": ("policy",),
    "error_rules": ("error_class", "message", "code", "header", "kind", "source", "topic", "consumer_group"),
    "error_sets": ("error_set", "error_class", "message", "code", "header"),
    "error_classes": ("error_class",),
    "transparent_wrappers": ("error_class",),
    "publish_error_kinds": ("code",),
}
