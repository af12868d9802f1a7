"""The columns of each seed, each with the check of its cells; the defaults of columns that may be left out; the keys.

Defaults, former names and short lists of words are read from models/_seeds.yml, by which dbt loads and tests the seeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from orchestration.clock import parse_duration
from orchestration.outbox.profiles import PROFILES, objection_to_columns
from orchestration.rules import patterns
from orchestration.rules.places import json_path, one_place, places
from orchestration.rules.topic_patterns import table_of
from orchestration.rules.vocabulary import (
    ANY_DIALECT,
    DIALECT_ENCODINGS,
    DIALECT_FIELDS,
    DIALECTS,
    ERROR_KINDS,
    EVERYTHING,
    HEADER_PROFILES,
    LINK_PLACEHOLDERS,
    NO_TOPIC,
    OTHER_KIND_WORDS,
    PUBLISH_KINDS,
    TOPIC_PLACEHOLDERS,
)
from orchestration.settings.sources import installed_project

Check = Callable[[str], str | None]
"""What is wrong with a cell, in words; None if nothing is."""

_YAML: Final = installed_project() / "models" / "_seeds.yml"
_DESCRIBED: Final[list[dict[str, Any]]] = yaml.safe_load(_YAML.read_text(encoding="utf-8"))["seeds"]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_TABLE = re.compile(r"[A-Za-z_]\w*([.][A-Za-z_]\w*){1,3}")
_ROWS_TOPIC = re.compile(r"([A-Za-z0-9._-]|\{[^{}]+\})+")
_SET = re.compile(r"[A-Za-z0-9._-]+")
_LINK = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_TEMPLATE = re.compile(rf"([A-Za-z0-9._-]|\{{({'|'.join(TOPIC_PLACEHOLDERS)})\}})+")


def _text(value: str) -> str | None:
    return None if value else "must not be empty"


def _dialect_name(value: str) -> str | None:
    return "is one of redrive's own: use another name" if value in (*DIALECTS, ANY_DIALECT) else _text(value)


def _source_name(value: str) -> str | None:
    return "must not begin with @" if value.startswith("@") else _text(value)


def _outbox_name(value: str) -> str | None:
    return None if _NAME.fullmatch(value) else "must be 1 to 60 letters, digits, hyphens and underscores"


def _connection_name(value: str) -> str | None:
    return (
        None if _NAME.fullmatch(value) and value == value.lower() else "must be 1 to 60 lower-case letters, digits, hyphens and underscores"
    )


def _topic_of_rows(value: str) -> str | None:
    return None if not value or _ROWS_TOPIC.fullmatch(value) else "must be a topic's name, in which {column} may stand, or empty"


def _anything(_: str) -> str | None:
    return None


def _one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def _listed(seed: str, column: str) -> Check:
    """One of the words that models/_seeds.yml lists for a column."""
    (columns,) = (one["columns"] for one in _DESCRIBED if one["name"] == seed)
    (tests,) = (one["data_tests"] for one in columns if one["name"] == column)
    (words,) = (test["accepted_values"]["arguments"]["values"] for test in tests if "accepted_values" in test)
    return _one_of(*words)


def _meta(key: str) -> dict[str, dict[str, str]]:
    """What the `meta` of each seed has under a key, for those that have it."""
    return {seed["name"]: seed["config"]["meta"][key] for seed in _DESCRIBED if key in seed["config"].get("meta", {})}


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


def _topic_or_table(value: str) -> str | None:
    table = table_of(value)
    if table is None:
        return _pattern(value)
    return None if _TABLE.fullmatch(table) else "must be the name of an Iceberg table after table:, as catalog.schema.table or schema.table"


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
    # names of headers are compared without regard to case
    expressions = (part for part in value.split() if part.startswith("^"))
    return next((problem for part in expressions if (problem := patterns.objection(part, ignore_case=True))), None)


def _privacy_name(value: str) -> str | None:
    return f"is the privacy that keeps all: use another name than {EVERYTHING}" if value == EVERYTHING else _text(value)


def _kind(value: str) -> str | None:
    words = {word.lower() for word in (*ERROR_KINDS, *OTHER_KIND_WORDS)}
    return None if value.lower() in words else f"must be one of {', '.join(ERROR_KINDS)}; or {', '.join(OTHER_KIND_WORDS)}"


def _patterns(value: str) -> str | None:
    return next((problem for part in value.split() if (problem := _pattern(part))), None) if value else "must not be empty"


def _template(value: str) -> str | None:
    return None if _TEMPLATE.fullmatch(value) else "must be a topic's name, in which {topic}, {group} and {kind} may stand"


def _retry_topic(value: str) -> str | None:
    if value == NO_TOPIC:
        return "only dead letters may go nowhere; for no retries at all, name a policy whose definition is none"
    return _template(value)


def _dead_letter_topic(value: str) -> str | None:
    objection = _template(value)
    return f"{objection}, or {NO_TOPIC} for none" if objection else None


def _rule_class(value: str) -> str | None:
    return _set_name(value[1:]) if value.startswith("@") else _class_or_any(value)


def _set_name(value: str) -> str | None:
    return None if _SET.fullmatch(value) else "must be the name of a set: letters, digits, . _ and -"


def _link(value: str) -> str | None:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", value) if name not in LINK_PLACEHOLDERS]
    if unknown:
        return f"knows no {{{unknown[0]}}}; placeholders are {', '.join(f'{{{name}}}' for name in LINK_PLACEHOLDERS)}"
    return None if not value or _LINK.fullmatch(value) else "must be an address (https://...), without blanks"


def _duration(value: str) -> str | None:
    try:
        parse_duration(value)
    except ValueError:
        return "must be a duration, up to 365 days: 90s, 5m, 2h, 1d"
    return None


def _duration_or_none(value: str) -> str | None:
    return _duration(value) if value else None


COLUMNS: dict[str, dict[str, Check]] = {
    "sources": {
        "source": _source_name,
        "topic": _topic_or_table,
        "dialect": _text,
        "consumer_group": _anything,
        "speaks_for": _patterns,
        "start": _listed("sources", "start"),
        "states_kind": _one_of("true", "false"),
        "adopt": _adopted,
        "trusts_counts": _listed("sources", "trusts_counts"),
        "payload": _listed("sources", "payload"),
    },
    "dialects": {
        "dialect": _dialect_name,
        "field": _one_of(*DIALECT_FIELDS, "owns", "recognised_by"),
        "header": _text,
        "occurrence": _listed("dialects", "occurrence"),
        "encoding": _one_of(*DIALECT_ENCODINGS),
        "path": json_path,
        "preference": _whole_number(1, 9),
    },
    "outboxes": {
        "outbox": _outbox_name,
        "connection": _connection_name,
        "table": _text,
        "profile": _one_of(*PROFILES),
        "columns": objection_to_columns,
        "topic": _topic_of_rows,
        "write_back": _listed("outboxes", "write_back"),
        "purge_after": _duration_or_none,
    },
    "routes": {
        "topic": _pattern_or_any,
        "consumer_group": _text,
        "error_kind": _one_of("*", *ERROR_KINDS),
        "retry_policy": _text,
        "publish_policy": _text,
        "retry_topic": _retry_topic,
        "dead_letter_topic": _dead_letter_topic,
        "publish_charge": _listed("routes", "publish_charge"),
        "circuit_breaker_per": _listed("routes", "circuit_breaker_per"),
        "sequence": one_place,
        "followers": _listed("routes", "followers"),
        "dead_letter_headers": _one_of(*(f"{profile}{stack}" for profile in HEADER_PROFILES for stack in ("", "+stack"))),
        "privacy": _text,
        "owner": _anything,
        "runbook": _anything,
        "logs_url": _link,
        "trace_url": _link,
        "request_id": places,
        "process_id": places,
        "trace_id": places,
        "purge_after": _duration_or_none,
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
        "max_life_cycles": _whole_number(2, 1000),
        "delay": _duration,
        "why": _text,
    },
    "privacy": {
        "name": _privacy_name,
        "stack": _listed("privacy", "stack"),
        "message": _listed("privacy", "message"),
        "payload": _listed("privacy", "payload"),
        "headers": _denied,
    },
    "retry_policies": {"policy": _text, "definition": _text},
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
        "concerns": _listed("publish_error_kinds", "concerns"),
        "why": _anything,
        "also_called": _anything,
    },
}

DEFAULTS: Final = _meta("defaults")
"""The columns that a file may leave out, with their defaults."""

FORMER_NAMES: Final = _meta("formerly")
"""Old names of columns and their new ones. The next version drops the old names."""

KEYS: dict[str, tuple[str, ...]] = {
    "sources": ("source",),
    "dialects": ("dialect", "field", "header", "path"),
    "outboxes": ("outbox",),
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
