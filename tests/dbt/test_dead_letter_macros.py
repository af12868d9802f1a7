"""What is read out of errors and payloads for people: golden tables, a row for each case, all of a table in one statement."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.dbt.harness import Home

JAVA = """java.lang.IllegalStateException: no price for order 4711
	at com.acme.billing.PriceList.lookUp(PriceList.java:93)
	at com.acme.billing.Leadership.run(Leadership.java:17)
	at java.base/java.lang.Thread.run(Thread.java:829)
"""
WRAPPED = """org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed
	at org.springframework.kafka.listener.adapter.Adapter.invoke(Adapter.java:1)
	... 13 more
Caused by: java.lang.NumberFormatException: For input string: "x17"
	at java.base/java.lang.NumberFormatException.forInputString(NumberFormatException.java:67)
	at java.base/java.lang.Integer.parseInt(Integer.java:652)
	at app//com.acme.billing.Amounts.<init>(Amounts.java:20)
"""
PYTHON = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/client.py", line 30, in fetch
    raise KeyError(name)
KeyError: 'price'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/billing/main.py", line 12, in <module>
    charge(order)
  File "C:\\\\billing\\\\charge.py", line 7, in charge
    raise LookupError("no price")
LookupError: no price
"""
JAVASCRIPT = """TypeError: cannot read properties of undefined (reading 'id')
    at node:internal/process/task_queues:95:5
    at async Leadership.run (/srv/billing/charge.js:10:5)
    at runMicrotasks (<anonymous>)
"""
DOTNET = """System.InvalidOperationException: Sequence contains no elements
   at System.Linq.ThrowHelper.ThrowNoElementsException()
   at Billing.Leadership.Run(Order order) in /src/Leadership.cs:line 12
"""

# class, message, stack, what it has in common with others of its kind
FINGERPRINTS: list[tuple[str | None, str | None, str | None, str]] = [
    ("java.lang.IllegalStateException", "no price for order 4711", JAVA, "com.acme.billing.PriceList.lookUp"),
    ("java.lang.IllegalStateException", "another", JAVA.replace("4711", "1").replace(":93", ":95"), "com.acme.billing.PriceList.lookUp"),
    ("java.lang.IllegalStateException", None, JAVA.replace("\n", "\r\n"), "com.acme.billing.PriceList.lookUp"),
    ("java.lang.NumberFormatException", 'For input string: "x17"', WRAPPED, "com.acme.billing.Amounts.<init>"),
    ("some.Other", "x", WRAPPED, "org.springframework.kafka.listener.adapter.Adapter.invoke"),
    (None, None, WRAPPED, "org.springframework.kafka.listener.adapter.Adapter.invoke"),
    ("j.E", "x", "j.E: x\n\tat java.base/java.util.List.get(List.java:1)\n", "java.util.List.get"),
    ("j.E", "x", "j.E: x\n\tat a.B$$EnhancerBySpringCGLIB$$1a2b3c4d.run(<generated>)\n", "a.B$$EnhancerBySpringCGLIB$$#.run"),
    ("j.E", "x", "j.E: x\n\tat a.B.lambda$run$17(B.java:4)\n", "a.B.lambda$run$#"),
    (
        "j.E",
        "x",
        "j.E: x\n\tat sun.reflect.GeneratedMethodAccessor42.invoke(Unknown Source)\n",
        "sun.reflect.GeneratedMethodAccessor#.invoke",
    ),
    ("LookupError", "no price", PYTHON, "charge.py in charge"),
    (
        "KeyError",
        "'a'",
        "Traceback (most recent call last):\n  File \"<stdin>\", line 1, in <module>\nKeyError: 'a'",
        "<stdin> in <module>",
    ),
    ("TypeError", "x", JAVASCRIPT, "Leadership.run"),
    ("System.InvalidOperationException", "x", DOTNET, "System.Linq.ThrowHelper.ThrowNoElementsException"),
    ("E", "order 17 at 12:30:01.5", "no frame in here", "order <number> at <number>"),
    ("E", "order 17", "", "order <number>"),
    ("E", "order 1,234.50 (of 3.)", None, "order <number> (of <number>.)"),
    ("E", "٣ of ４", None, "<number> of <number>"),
    ("E", "order-17 of acme_5", None, "order-<number> of acme_<number>"),
    ("E", "no 3f2504e0-4f89-11d3-9a0c-0305e82c3301!", None, "no <id>!"),
    ("E", "no 3F2504E0-4F89-11D3-9A0C-0305E82C3301", None, "no <id>"),
    ("E", "object 507f1f77bcf86cd799439011 at 0x7ffee", None, "object <id> at <id>"),
    ("E", "id 12345678", None, "id <number>"),
    ("E", "the facade of defaced cafebabe", None, "the facade of defaced cafebabe"),
    ("E", "can't find 'A-17' in \"the 'old' list\"", None, "can't find <text> in <text>"),
    ("E", "the customers' card isn't there", None, "the customers' card isn't there"),
    ("E", "«Ä» „x“ “y” ‘z’ `q`", None, "<text> <text> <text> <text> <text>"),
    ("E", "größe 5 überschritten 😀", None, "größe <number> überschritten 😀"),
    ("E", "日本語のエラー 42", None, "日本語のエラー <number>"),
    ("E", "a\tb\r\n\x1b[31mc\u202ed", None, "a b [<number>mc d"),
    ("E", "'" * 1000, None, "<text>" * 33 + "<t"),
    ("E", "x" * 1024, None, "x" * 200),
    ("E", "$1 \\1 \\", None, "$<number> \\<number> \\"),
    ("E", " \n ", None, "-"),
    ("E", "", None, "-"),
    ("E", None, None, "-"),
    (None, None, None, "-"),
    ("", "", "", "-"),
]


def _read(home: Home, rows: list[tuple[Any, ...]], columns: str, *expressions: str) -> list[tuple[Any, ...]]:
    frame = home.spark.createDataFrame([(place, *row) for place, row in enumerate(rows)], f"place int, {columns}")
    compiled = [home.compiled("{{ " + expression + " }}") for expression in expressions]
    return [tuple(row) for row in frame.orderBy("place").selectExpr(*compiled).collect()]


def test_errors_of_the_same_reason_have_the_same_fingerprint(home: Home) -> None:
    found = _read(
        home,
        [row[:3] for row in FINGERPRINTS],
        "class string, message string, stack string",
        "error_pattern('class', 'message', 'stack')",
        "fingerprint('class', error_pattern('class', 'message', 'stack'))",
    )
    assert [pattern for pattern, _ in found] == [row[3] for row in FINGERPRINTS]
    named = [f"{row[0] or ''}\n{row[3]}" for row in FINGERPRINTS]
    assert [print_ for _, print_ in found] == [hashlib.sha256(name.encode()).hexdigest()[:12] for name in named]


DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000

# value, type, schema id, excerpt
PAYLOADS: list[tuple[bytes | None, str, int | None, str | None]] = [
    (None, "null", None, None),
    (b"", "empty", None, None),
    (b'{"order": 17}', "json", None, '{"order": 17}'),
    (b" [1,\n 2]\n", "json", None, "[1, 2]"),
    (b'{"order": 17', "text", None, '{"order": 17'),
    (b'{"a": 1} and more', "text", None, '{"a": 1} and more'),
    (b"17", "text", None, "17"),
    (b"plain\ttext\r\n\x1b", "binary", None, "706c61696e09746578740d0a1b"),
    ("größe 😀".encode(), "text", None, "größe 😀"),
    ("a\u202eb".encode(), "text", None, "a b"),
    (b"x" * 5000, "text", None, "x" * 200),
    ("😀".encode() * 300, "text", None, "😀" * 200),
    (b"\xff\xfe", "binary", None, "fffe"),
    (b"\x00" * 40, "binary", None, "00" * 32),
    (b"\x00\x00\x00\x00\x2a", "binary", None, "000000002a"),
    (b"\x00\x00\x00\x00\x2a\x02\x06foo", "avro", 42, "0206666f6f"),
    (b"\x00\x00\x00\x00\x2afoo", "avro", 42, "666f6f"),
    (b'\x00\x00\x00\x00\x2a{"a": 1}', "json", 42, '{"a": 1}'),
    (b"\x00\xff\x00\x00\x2afoo", "binary", None, "00ff00002a666f6f"),
    (b'{"a": "\xff"}', "binary", None, "7b2261223a2022ff227d"),
    (b'{"a": 1e999999999, "b": 123456789012345678901234567890}', "json", None, '{"a": 1e999999999, "b": 123456789012345678901234567890}'),
    (DEEP, "text", None, DEEP[:200].decode()),
]


def test_payloads_are_guessed_whatever_is_in_them(home: Home) -> None:
    body = "case when schema_id is not null then substring(value, 6) else value end"
    frame = home.spark.createDataFrame([(place, row[0]) for place, row in enumerate(PAYLOADS)], "place int, value binary")
    schema_id, payload_type, excerpt = (
        home.compiled("{{ " + macro + " }}")
        for macro in ("schema_id('value')", "payload_type('value', 'schema_id', 'body')", "excerpt('payload_type', 'body')")
    )
    frame = frame.selectExpr("*", f"{schema_id} as schema_id").selectExpr("*", f"{body} as body")
    frame = frame.selectExpr("*", f"{payload_type} as payload_type")
    found = [tuple(row) for row in frame.orderBy("place").selectExpr("payload_type", "schema_id", excerpt).collect()]
    assert found == [row[1:] for row in PAYLOADS]


HEADERS = [("x-request", b"old"), ("x-request", b"r-1"), ("empty", b""), ("null", None), ("bytes", b"\xff\x1bz"), ("long", b"y" * 999)]
JSON = b'{"meta": {"request": "r 2", "n": 17, "deep": {"a": [1, {"b": "c"}]}}, "it\'s": "x"}'

# where, value, what is found
PLACES: list[tuple[str | None, bytes | None, str | None]] = [
    ("x-request", JSON, "r-1"),
    ("absent x-request", JSON, "r-1"),
    ("empty null absent", JSON, None),
    ("$.meta.request", JSON, "r 2"),
    ("$.meta.absent  $.meta.n", JSON, "17"),
    ("$.meta.deep.a[1].b", JSON, "c"),
    ("$['it\\'s'] $.[ $ $..x $[", b"not json", None),
    ("$.meta.request", b"\xff\xfe", None),
    ("$.meta.request", None, None),
    ("$.meta.request x-request", DEEP, "r-1"),
    ("bytes", None, "� z"),
    ("long", None, "y" * 256),
    ("", JSON, None),
    (None, JSON, None),
]


def test_ids_are_found_where_a_route_says(home: Home) -> None:
    rows = [(places, HEADERS, value) for places, value, _ in PLACES]
    columns = "places string, headers array<struct<key: string, value: binary>>, value binary"
    found = _read(home, rows, columns, "identifier('places', 'headers', 'value')")
    assert [row[0] for row in found] == [row[2] for row in PLACES]
    assert _read(home, [("x", None, None)], columns, "identifier('places', 'headers', 'value')") == [(None,)]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

TRACES = [
    (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
    (f"{TRACE}-00f067aa0ba902b7-1-05e3ac9a4f6e3b90", TRACE),
    ("a3ce929d0e0e4736-00f067aa0ba902b7", "a3ce929d0e0e4736"),
    (TRACE, TRACE),
    ("8512372112345", "8512372112345"),
    (None, None),
]


NAMED_HEADERS: list[tuple[list[tuple[str, bytes | None]] | None, dict[str, str | None] | None]] = [
    ([("a", b"1"), ("b", b"2")], {"a": "1", "b": "2"}),
    ([("a", b"1"), ("b", b"2"), ("a", b"3")], {"a": "3", "b": "2"}),
    ([("a", b"1"), ("a", None)], {"a": None}),
    ([("a", None), ("a", b"")], {"a": ""}),
    ([("A", b"1"), ("a", b"2"), ("", b"3")], {"A": "1", "a": "2", "": "3"}),
    ([("a", b"ok\xff")], {"a": "ok�"}),
    ([], {}),
    (None, None),
]


def test_headers_are_asked_for_by_name(home: Home) -> None:
    rows = [(headers,) for headers, _ in NAMED_HEADERS]
    found = _read(home, rows, "headers array<struct<key: string, value: binary>>", "headers_by_name('headers')")
    assert [named for (named,) in found] == [named for _, named in NAMED_HEADERS]


def test_a_trace_is_named_by_its_part_of_the_header(home: Home) -> None:
    found = _read(home, [(said,) for said, _ in TRACES], "said string", "trace_id('said')")
    assert [row[0] for row in found] == [trace for _, trace in TRACES]


LINKS: list[tuple[str | None, str | None, str | None]] = [
    ("https://logs/?q={a}", "b c&d/ä{a}", "https://logs/?q=b%20c%26d%2F%C3%A4%7Ba%7D"),
    ("https://logs/?q={a}&r={a}", "1", "https://logs/?q=1&r=1"),
    ("https://logs/?n={n}", None, "https://logs/?n=7"),
    ("https://logs/?q={a}", None, None),
    ("https://logs/", None, "https://logs/"),
    (None, "1", None),
]


@pytest.mark.parametrize("place", range(len(LINKS)), ids=[str(row[0]) for row in LINKS])
def test_a_link_has_everything_or_is_none(place: int, links: list[str | None]) -> None:
    assert links[place] == LINKS[place][2]


@pytest.fixture(scope="module")
def links(home: Home) -> list[str | None]:
    """All links, made in one statement."""
    rows = [row[:2] for row in LINKS]
    return [row[0] for row in _read(home, rows, "template string, a string", "link('template', {'a': 'a', 'n': '7'})")]
