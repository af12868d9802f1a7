"""Macros as expressions: tables of cases, each a value that goes in and what must come out.

Longer than other modules: one statement computes all values, as a statement for each macro would take minutes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestration.rules.topic_patterns import topic_matches


@dataclass(frozen=True)
class Case:
    """An expression, with macros in Jinja, and its value."""

    macro: str
    expression: str
    value: object

    def __str__(self) -> str:
        return f"{self.macro}: {self.expression}"[:120]


def text(value: str | None) -> str:
    """A SQL literal, made without the macro that is tested here."""
    if value is None:
        return "cast(null as string)"
    return f"cast(x'{value.encode().hex()}' as string)"


def binary(value: bytes | None) -> str:
    return "cast(null as binary)" if value is None else f"x'{value.hex()}'"


def call(macro: str, *arguments: object) -> str:
    """A macro's call in Jinja: a text is an expression for the macro to put in its place."""
    return "{{ " + f"{macro}({', '.join(map(repr, arguments))})" + " }}"


def millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


# ---------- delays


def backoff(
    failures: int, initial_ms: int = 1000, factor: float = 2, max_ms: int = 60000, increment_ms: int = 0, steps: str = "null"
) -> str:
    policy = (
        f"named_struct('initial_ms', {initial_ms}, 'factor', {factor}d, 'increment_ms', {increment_ms}, 'max_ms', {max_ms}, "
        f"'steps', cast({steps} as array<struct<upto: bigint, delay_ms: bigint>>))"
    )
    return call("backoff_delay_ms", f"{failures}", policy)


def jitter(message: str, attempt: int, fraction: float = 0.3) -> str:
    return call("jitter", text(message), f"{attempt}", f"{fraction}d")


DELAYS = [
    *(
        Case("backoff_delay_ms", backoff(number), delay)
        for number, delay in enumerate([1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000], start=1)
    ),
    Case("backoff_delay_ms", backoff(3, factor=1), 1000),
    Case("backoff_delay_ms", backoff(3, factor=1.5), 2250),
    Case("backoff_delay_ms", backoff(1, max_ms=10), 10),
    Case("backoff_delay_ms", backoff(0), 1000),
    Case("backoff_delay_ms", backoff(2147483647), 60000),
    Case("backoff_delay_ms", backoff(2147483647, factor=1), 1000),
    Case("backoff_delay_ms", backoff(2147483647, factor=1000), 60000),
    Case("backoff_delay_ms", backoff(2147483647, initial_ms=9223372036854775807, factor=1000), 60000),
    Case("jitter", f"{jitter('m', 1)} = {jitter('m', 1)}", True),
    Case("jitter", f"{jitter('m', 1)} = {jitter('n', 1)}", False),
    Case("jitter", f"{jitter('m', 1)} = {jitter('m', 2)}", False),
    Case("jitter", jitter("m", 1, 0), 1),
    Case("jitter", f"(select min({call('jitter', 'id', '1', '0.3d')}) between 0.7 and 0.71 from range(2000))", True),
    Case("jitter", f"(select max({call('jitter', 'id', '1', '0.3d')}) between 1.29 and 1.3 from range(2000))", True),
    Case("jitter", f"(select avg({call('jitter', 'id', '1', '0.3d')}) between 0.98 and 1.02 from range(2000))", True),
    *(
        Case("backoff_delay_ms", backoff(number, steps="array(struct(2, 5000), struct(3, 15000))"), delay)
        for number, delay in enumerate([5000, 5000, 15000, 15000], start=1)
    ),
    Case("backoff_delay_ms", backoff(4, factor=1, increment_ms=500), 2500),
    Case("backoff_delay_ms", backoff(2147483647, factor=1, increment_ms=9223372036854775807), 60000),
    *(
        Case("duration_ms", call("duration_ms", text(said), *bare), milliseconds)
        for said, bare, milliseconds in [
            ("500ms", (), 500),
            ("1s", (), 1000),
            ("1.5s", (), 1500),
            ("0.0005s", (), None),
            ("0.5ms", (), 1),
            ("2m", (), 120_000),
            ("1h", (), 3_600_000),
            ("365d", (), 31_536_000_000),
            ("366d", (), None),
            ("999999999d", (), None),
            ("10", (), None),
            ("10", ("1000",), 10_000),
            ("10", ("1",), 10),
            ("-1s", (), None),
            ("1 s", (), None),
            ("s", (), None),
            ("", (), None),
            (None, (), None),
            ("1s\n", (), None),
            ("1w", (), None),
        ]
    ),
    *(
        Case("error_kind", call("error_kind", text(word)), kind)
        for word, kind in [
            ("fatal", "fatal"),
            (" Poison ", "poison"),
            ("NRE", "fatal"),
            ("SLE", "retriable"),
            ("SNBE", "retriable"),
            ("sbe", "blocking"),
            ("transient", "retriable"),
            ("non-transient", "fatal"),
            ("recoverable", "retriable"),
            ("not recoverable", "fatal"),
            ("unrecoverable", "fatal"),
            ("quota", "quota"),
            ("", None),
            (None, None),
            ("fatal!", None),
        ]
    ),
]


WHOLE_NUMBERS: Mapping[str | None, int | None] = {
    "0": 0,
    "17": 17,
    "007": 7,
    "100": 100,
    "101": None,
    "9" * 18: None,
    "9" * 4000: None,
    "": None,
    "-1": None,
    "+1": None,
    " 1": None,
    "1\n": None,
    "1.0": None,
    "1e1": None,
    "0x1": None,
    "１": None,
    None: None,
}


BIG_ENDIANS: Mapping[tuple[bytes | None, str, int], int | None] = {
    (b"\0\0\0\x11", "int32", 2**31 - 1): 17,
    (b"\x7f\xff\xff\xff", "int32", 2**31 - 1): 2**31 - 1,
    (b"\x80\0\0\0", "int32", 2**31 - 1): None,
    (b"\xff\xff\xff\xff", "int32", 2**31 - 1): None,
    (b"\0\0\0\0\0\0\0\0", "int64", 2**63 - 2): 0,
    (b"\x7f\xff\xff\xff\xff\xff\xff\xfe", "int64", 2**63 - 2): 2**63 - 2,
    (b"\x7f\xff\xff\xff\xff\xff\xff\xff", "int64", 2**63 - 2): None,
    (b"\x80\0\0\0\0\0\0\0", "int64", 2**63 - 2): None,
    (b"\xff" * 8, "int64", 2**63 - 2): None,
    (b"\0\0\x11", "int32", 2**31 - 1): None,
    (b"\0\0\0\0\x11", "int32", 2**31 - 1): None,
    (b"\0\0\0\x11", "int64", 2**63 - 2): None,
    (b"1234567890" * 100, "int64", 2**63 - 2): None,
    (b"", "int32", 2**31 - 1): None,
    (None, "int32", 2**31 - 1): None,
    (b"\x02", "byte_or_int32", 1000): 2,
    (b"\xff", "byte_or_int32", 1000): 255,
    (b"\0\0\0\x03", "byte_or_int32", 1000): 3,
    (b"\xff\xff\xff\xff", "byte_or_int32", 1000): None,
    (b"\0\x03", "byte_or_int32", 1000): None,
    (b"\0", "shortest", 2**63 - 2): 0,
    (b"\x7f", "shortest", 2**63 - 2): 127,
    (b"\x80", "shortest", 2**63 - 2): None,
    (b"\0\x80", "shortest", 2**63 - 2): 128,
    (b"\x7f\xff\xff\xff\xff\xff\xff\xff", "shortest", 2**63 - 2): None,
    (b"\0" * 9, "shortest", 2**63 - 2): None,
    (b"\0\0\0\x11", "some other", 1000): None,
}


NOON = millis(datetime(2026, 3, 1, 12, tzinfo=UTC))


POINTS_IN_TIME: Mapping[str | None, int | None] = {
    str(NOON): NOON,
    "0": 0,
    "4102444799999": 4102444799999,
    "4102444800000": None,
    "253402300799999": None,
    "999999999999999": None,
    "9" * 16: None,
    "-1": None,
    "2026-03-01T12:00:00Z": NOON,
    "2026-03-01T14:00:00+02:00": NOON,
    "2026-03-01T06:30:00-05:30": NOON,
    "2026-03-01T12:00:00.1Z": NOON + 100,
    "2026-03-01T12:00:00.123999Z": NOON + 123,
    "2026-03-01T12:00:00.123999999Z": NOON + 123,
    "1970-01-01T00:00:00Z": 0,
    "1969-12-31T23:59:59.999Z": None,
    "2099-12-31T23:59:59.999999Z": 4102444799999,
    "2100-01-01T00:00:00Z": None,
    "2100-01-01T00:00:00+01:00": 4102441200000,
    "0001-01-01T00:00:00Z": None,
    "0000-01-01T00:00:00Z": None,
    "9999-12-31T23:59:59-18:00": None,
    "2026-03-01T12:00:00": None,
    "2026-03-01 12:00:00Z": None,
    "2026-03-01": None,
    "2026-13-01T12:00:00Z": None,
    "2026-02-30T12:00:00Z": None,
    "2026-03-01T25:00:00Z": None,
    "2026-03-01T12:00:00+99:99": None,
    "2026-03-01T12:00:00Z\n": None,
    "now": None,
    "": None,
    None: None,
}


TOPICS: Mapping[str | None, bool] = {
    "orders": True,
    "Orders_2.eu-west": True,
    "...": True,
    "a" * 249: True,
    "a" * 250: False,
    ".": False,
    "..": False,
    "": False,
    "a b": False,
    "a'b": False,
    "a\n": False,
    "ä": False,
    None: False,
}


GROUPS: Mapping[str | None, bool] = {
    "billing": True,
    "a b/c:d'e": True,
    "ä😀": True,
    "a" * 249: True,
    "a" * 250: False,
    "": False,
    "a\x00": False,
    "a\x7f": False,
    "a\nb": False,
    "a\n": False,
    None: False,
}


REPAIRED: Mapping[tuple[bytes | None, int], str | None] = {
    (b"plain", 512): "plain",
    (b"plain", 3): "pla",
    ("é".encode(), 512): "é",
    (b"a\xffb", 512): "a\N{REPLACEMENT CHARACTER}b",
    (b"\xff" * 4, 9): "\N{REPLACEMENT CHARACTER}" * 3,
    (b"\xff" * 4, 8): "\N{REPLACEMENT CHARACTER}" * 2,
    (b"\xff", 2): "",
    ("abcé".encode(), 4): "abc",
    ("abcक".encode(), 5): "abc",
    ("abc😀".encode(), 5): "abc",
    (b"", 512): "",
    (None, 512): None,
}


# ---------- foreign text and bytes


FOREIGN = [
    *(Case("whole_number", call("whole_number", text(given), 100), number) for given, number in WHOLE_NUMBERS.items()),
    Case("whole_number", call("whole_number", text("9" * 18), 2**63 - 2), int("9" * 18)),
    *(
        Case("big_endian", call("big_endian", binary(given), text(encoding), greatest), number)
        for (given, encoding, greatest), number in BIG_ENDIANS.items()
    ),
    *(Case("point_in_time", f"unix_millis({call('point_in_time', text(given))})", at) for given, at in POINTS_IN_TIME.items()),
    *(Case("kafka_topic", call("kafka_topic", text(given)), given if legal else None) for given, legal in TOPICS.items()),
    *(Case("known_group", call("known_group", text(given)), given if known else None) for given, known in GROUPS.items()),
    *(
        # what fits of the bytes, without the piece of a character at the end
        Case("utf8_cut", call("utf8_cut", text(given), most), given.encode()[:most].decode(errors="ignore"))
        for given in ["ab" + character + "c" for character in "aéक😀"]
        for most in range(1, 8)
    ),
    Case("utf8_cut", call("utf8_cut", text(None), 8), None),
    *(
        Case("big_endian_bytes", call("big_endian_bytes", f"{number}L", width), number.to_bytes(width, "big", signed=True))
        for number, width in [(0, 4), (2**31 - 1, 4), (258, 4), (0, 8), (-1, 8), (2**63 - 1, 8), (1_767_323_045_678, 8)]
    ),
    Case("big_endian_bytes", call("big_endian_bytes", "cast(null as int)", 4), None),
    Case("utf8_text", call("utf8_text", binary(b"a\xff")), None),
    Case("utf8_text", call("utf8_text", binary("é😀".encode())), "é😀"),
    *(Case("utf8_repaired", call("utf8_repaired", binary(given), most), kept) for (given, most), kept in REPAIRED.items()),
]


CONTENTS: list[tuple[bytes | None, bytes | None]] = [
    *itertools.product([None, b"", b"a"], [None, b"", b"a"]),
    (b"ab", b""),
    (b"", b"ab"),
    (b"a", b"b"),
    (b"\x00", b"\xff"),
]


# ---------- names and hashes


def content_hash(key: bytes | None, value: bytes | None) -> str:
    lengths = ",".join(str(-1 if part is None else len(part)) for part in (key, value))
    return hashlib.sha256(lengths.encode() + (key or b"") + (value or b"")).hexdigest()[:32]


TEXTS = ["it's", "''", "\\", "\\'", "\\n", "a\nb", "\\u0041", "^orders[.]\\d+$", '"', "%_", "é😀", "-- no comment", "", 17, None]


NAMES = [
    *(Case("content_hash", call("content_hash", binary(key), binary(value)), content_hash(key, value)) for key, value in CONTENTS),
    *(Case("sql_text", call("sql_text", value), str(value)) for value in TEXTS),
    Case("message_id", call("message_id", "'billing'", "'orders'", "0", "17"), "billing:orders/0/17"),
    Case("message_id", call("message_id", "null", "'orders'", "0", "17"), ":orders/0/17"),
]


# ---------- where it may go


def pattern(template: str, group: str | None) -> str:
    return call("destination_pattern", text(template), text(group))


def ours(topic: str, group: str | None = "billing", speaks_for: str = "^.*", templates: str = "{topic}-{group}-retry {topic}.dlq") -> str:
    return call("is_our_destination", text(topic), text(group), text(speaks_for), f"array({', '.join(map(text, templates.split()))})")


def privacy(denied: list[str] | None) -> str:
    """A privacy that hides payloads and denies headers; None for no privacy at all."""
    if denied is None:
        return "cast(null as struct<stack: string, payload: string, denied_headers: array<string>>)"
    listed = f"array({', '.join(map(text, denied))})" if denied else "cast(array() as array<string>)"
    return f"named_struct('stack', 'keep', 'payload', 'hide', 'denied_headers', {listed})"


MOST_SPECIFIC_FIRST = [
    ("orders", "billing"),
    ("orders", "*"),
    ("^orders-eu", "*"),
    ("^orders", "billing"),
    ("^orders", "*"),
    ("*", "billing"),
    ("*", "*"),
]


ROUTES = [
    *(
        Case("topic_matches", call("topic_matches", text(topic), text(given)), topic_matches(topic, given))
        for topic, given in itertools.product(
            ["orders", "orders2", "orders.eu", "ordersXeu", "x-orders", "*", "^orders"],
            ["orders", "*", "^orders", "^orders$", "^orders[.]", "^.*eu$", "orders.eu", "^(a|orders)\\d"],
        )
    ),
    *(
        Case("topic_from_template", call("topic_from_template", text(template), "'orders'", "'billing'", "'fatal'"), made)
        for template, made in [
            ("{topic}-{group}-retry", "orders-billing-retry"),
            ("{topic}.dlq", "orders.dlq"),
            ("{topic}-{group}-dlt", "orders-billing-dlt"),
            ("dead.letters", "dead.letters"),
            ("{topic}.{kind}.dlq", "orders.fatal.dlq"),
            ("{topic}", "orders"),
            ("all", "all"),
            ("{group}.{group}", "billing.billing"),
        ]
    ),
    Case("destination_pattern", pattern("{topic}-{group}.retry", "billing.eu"), "^(.+)-billing[.]eu[.]retry\\z"),
    Case("destination_pattern", pattern("{topic}-{group}-retry", None), "^(.+)-.+-retry\\z"),
    Case("destination_pattern", pattern("{topic}-{group}-retry", "a(b"), "^(.+)-.+-retry\\z"),
    Case("destination_pattern", pattern("{topic}.{kind}", "billing"), "^(.+)[.][a-z]+\\z"),
    Case("is_our_destination", ours("orders-billing-retry"), True),
    Case("is_our_destination", ours("orders.dlq"), True),
    Case("is_our_destination", ours("orders"), False),
    Case("is_our_destination", ours("ordersXdlq"), False),
    Case("is_our_destination", ours("orders.dlq.eu"), False),
    Case("is_our_destination", ours(".dlq"), False),
    Case("is_our_destination", ours("orders-billing-retry", group="shipping"), False),
    Case("is_our_destination", ours("orders-billing-retry", group=None), True),
    Case("is_our_destination", ours("orders-billing-retry", group="a b"), True),
    Case("is_our_destination", ours("orders.dlq", speaks_for="orders payments"), True),
    Case("is_our_destination", ours("shipping.dlq", speaks_for="orders payments"), False),
    Case("is_our_destination", ours("orders.dlq", speaks_for="  ^.*   orders.dlq "), False),
    Case("is_our_destination", ours("orders", templates="{topic} {topic}.dlq"), False),
    Case("is_our_destination", ours("all-retries", templates="all-retries {topic}.dlq"), True),
    Case("is_our_destination", ours("orders.fatal.dlq", templates="{topic}-retry {topic}.{kind}.dlq", speaks_for="orders"), True),
    Case("is_our_destination", ours("orders.9.dlq", templates="{topic}-retry {topic}.{kind}.dlq", speaks_for="orders"), False),
    Case("is_our_destination", ours("orders-billing-dlt", templates="{topic}-{group}-dlt"), True),
    Case("is_our_destination", ours("late.dead", templates="{topic}.dlq late.dead"), True),
    *(
        Case("is_dead_letter_header", call("is_dead_letter_header", text(profile), text(name)), belongs)
        for profile, name, belongs in [
            ("dlq", "dlq-attempts", True),
            ("dlq+stack", "dlq-stack", True),
            ("dlq", "dlq-mine", False),
            ("dlq", "x-dlq-metadata", False),
            ("safi", "x-dlq-metadata", True),
            ("spring+stack", "kafka_dlt-original-offset", True),
            ("spring", "kafka_original-offset", False),
            ("connect", "__connect.errors.task.id", True),
            (None, "dlq-attempts", False),
            ("no profile", "dlq-attempts", False),
        ]
    ),
    *(
        Case("is_denied_header", call("is_denied_header", text(name), privacy(denied)), denies)
        for name, denied, denies in [
            ("Authorization", ["cookie", "authorization"], True),
            ("authorization-of", ["authorization"], False),
            ("X-Secret-Name", ["^x-secret-"], True),
            ("an-x-secret-", ["^x-secret-"], False),
            ("anything", ["^"], True),
            ("anything", [], False),
            ("anything", None, False),
        ]
    ),
    Case("privacy_keeps", call("privacy_keeps", "payload", privacy([])), False),
    Case("privacy_keeps", call("privacy_keeps", "stack", privacy([])), True),
    Case("privacy_keeps", call("privacy_keeps", "stack", privacy(None)), True),
    *(
        Case("route_rank", f"{call('route_rank', *map(text, before))} < {call('route_rank', *map(text, after))}", True)
        for before, after in itertools.pairwise(MOST_SPECIFIC_FIRST)
    ),
]


# ---------- what a decide run looks up


def span(topic: str, partition: int, first: int, last: int) -> str:
    return f"named_struct('topic', '{topic}', 'partition', {partition}, 'first', {first}L, 'last', {last}L)"


UNEVEN = [span("a", 0, 1_000_000, 1_000_005), span("a", 1, 7, 9), span("a", 1, 50_000, 50_000), span("b", 0, 1, 2)]


# more than are told apart by partition, of few topics and of many
TOO_MANY = [span("a", partition, 10, 20 + partition) for partition in range(501)]


OF_TOO_MANY_TOPICS = [span(f"t-{number}", partition, 10, 20 + partition) for number in range(101) for partition in range(5)]


# topic, partition, offset, spans, and whether the record is within them
BOUNDS: list[tuple[str, int, int, list[str], bool]] = [
    ("a", 0, 1_000_003, UNEVEN, True),
    # where another partition has got to, this one was long ago
    ("a", 0, 8, UNEVEN, False),
    ("a", 1, 1_000_003, UNEVEN, False),
    ("a", 1, 9, UNEVEN, True),
    # an offset that somebody made up asks for nothing in between
    ("a", 1, 30_000, UNEVEN, False),
    ("a", 1, 50_000, UNEVEN, True),
    ("b", 0, 2, UNEVEN, True),
    ("b", 0, 1_000_003, UNEVEN, False),
    ("c", 0, 1, UNEVEN, False),
    ("a", 0, 1, [], False),
    ("a", 0, 500, TOO_MANY, True),
    ("a", 0, 521, TOO_MANY, False),
    ("b", 0, 11, TOO_MANY, False),
    ("b", 9, 11, OF_TOO_MANY_TOPICS, True),
    ("t-1", 0, 25, OF_TOO_MANY_TOPICS, False),
]


CASES = [*DELAYS, *FOREIGN, *NAMES, *ROUTES]
