"""Failures, and which rule must decide about each: with the project's rules, and those that conftest.py adds."""

from __future__ import annotations

from dataclasses import dataclass

from tests.dbt.harness import Report, report, spring_report

NPE = "java.lang.NullPointerException"
TIMEOUT = "java.net.SocketTimeoutException"
PSQL = "org.postgresql.util.PSQLException"
CANCELED = "canceling statement due to statement timeout"
LISTENER = "org.springframework.kafka.listener.ListenerExecutionFailedException"
ASKED_ONCE = "no header or code that is asked for, of any cause"

LONG_STACK = "java.util.concurrent.ExecutionException: x\n" + "\tat com.acme.Frame.of(Frame.java:1)\n" * 6_000 + f"Caused by: {NPE}: boo"
JAVA_STACK = """java.lang.RuntimeException: outer
\tat com.acme.Listener.on(Listener.java:1)
\tSuppressed: java.lang.NullPointerException: suppressed is no cause
\t\tat com.acme.Closing.close(Closing.java:2)
Caused by: com.acme.Unheard: middle
\tat com.acme.Client.call(Client.java:3)
\t... 12 more
Caused by: java.net.SocketTimeoutException: Read timed out
\tat java.base/sun.nio.ch.NioSocketImpl.timedRead(NioSocketImpl.java:4)
\t... 13 more
"""

PYTHON_STACK = """Traceback (most recent call last):
  File "client.py", line 3, in call
    sock.recv(1)
TimeoutError: timed out

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "client.py", line 7, in fetch
    raise Unheard("no price") from error
acme.Unheard: no price

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "consumer.py", line 9, in handle
    raise RuntimeError("outer")
RuntimeError: outer
"""


@dataclass(frozen=True)
class Case:
    """A failure, and what must be decided about it: its kind, the rule that says so, and what the rule matched."""

    name: str
    report: Report
    kind: str
    rule: str
    matched: str | None


def fails(
    topic: str,
    error: str | None = None,
    message: str | None = None,
    stack: str | None = None,
    *headers: tuple[str, str],
    group: str = "billing",
    source: str = "failures",
) -> Report:
    """A report with what classification looks at."""
    said = [("redrive-error-class", error), ("redrive-error-message", message), ("redrive-error-stack", stack), *headers]
    plain = report(topic, group=group, error=None).but(source=source)
    kept = tuple(header for header in plain.headers or () if header[0] != "redrive-error-message")
    return plain.but(headers=(*kept, *((name, text.encode()) for name, text in said if text is not None)))


CASES = [
    # ---------- one class
    Case("exact", fails("c1", NPE), "fatal", f"{NPE}", NPE),
    Case(
        "by its parent",
        fails("c2", "java.net.NoRouteToHostException"),
        "retriable",
        "java.net.SocketException+",
        "java.net.NoRouteToHostException",
    ),
    Case("unknown", fails("c3", "com.acme.Odd"), "retriable", "default: retriable", None),
    Case("none", fails("c4"), "retriable", "default: retriable", None),
    Case("a class is a name, not its beginning", fails("c5", f"{NPE}s"), "retriable", "default: retriable", None),
    Case(
        "a wrapper type",
        fails("c6", "com.acme.NotRetryableException"),
        "fatal",
        r"^(?:.*[.$])?(?:NotRetryable|Fatal)(?:Error|Exception)$",
        "com.acme.NotRetryableException",
    ),
    # ---------- the order within a scope
    Case(
        "a message before the class alone",
        fails("order", "a.B", "was late"),
        "quota",
        "a.B, message late for topic order",
        "a.B message was late",
    ),
    Case("exact before a pattern", fails("order", "a.B", "x"), "fatal", "a.B for topic order", "a.B"),
    Case(
        "a pattern before a parent",
        fails("order", "java.io.EOFException"),
        "poison",
        "^java[.]io[.]EOF for topic order",
        "java.io.EOFException",
    ),
    Case("the longer pattern", fails("order", "a.Long"), "quota", "^a[.]Long for topic order", "a.Long"),
    Case("the shorter pattern", fails("order", "a.Lot"), "poison", "^a[.]L for topic order", "a.Lot"),
    Case(
        "the nearest parent",
        fails("order", "java.net.ConnectException"),
        "quota",
        "java.net.SocketException+ for topic order",
        "java.net.ConnectException",
    ),
    Case(
        "a farther parent",
        fails("order", "java.nio.channels.ClosedChannelException"),
        "fatal",
        "java.io.IOException+ for topic order",
        "java.nio.channels.ClosedChannelException",
    ),
    Case("all others of a scope", fails("order", "z.Z"), "poison", "all others for topic order", None),
    Case(
        "a regular expression of the message",
        fails("order", "m.M", "code 503"),
        "retriable",
        "message ^code 5[0-9]+$ for topic order",
        "m.M message code 503",
    ),
    # ---------- scopes
    Case("a narrower scope before a better match", fails("scope-eu", NPE), "retriable", "java.lang.Throwable+ for topic scope-eu", NPE),
    Case("a name before an expression", fails("scope-us", NPE), "quota", f"{NPE} for topic ^scope-, group billing", NPE),
    Case("an expression before any", fails("scope-us", NPE, group="other"), "backpressure", f"{NPE} for topic ^scope-", NPE),
    Case("a source", fails("spoken-for", NPE, source="narrow"), "blocking", f"{NPE} for source narrow", NPE),
    # ---------- chains of causes
    Case("Java's causes", fails("c7", "java.lang.RuntimeException", "outer", JAVA_STACK), "retriable", f"{TIMEOUT}", TIMEOUT),
    Case("Python's causes", fails("c8", "RuntimeError", "outer", PYTHON_STACK), "retriable", "TimeoutError", "TimeoutError"),
    Case(
        "the outermost that a rule knows masks the rest",
        fails("c9", "com.acme.FatalException", "outer", JAVA_STACK),
        "fatal",
        r"^(?:.*[.$])?(?:NotRetryable|Fatal)(?:Error|Exception)$",
        "com.acme.FatalException",
    ),
    Case(
        "a message of a cause",
        fails("order", "n.N", "x", "n.N: x\n\tat n\nCaused by: o.O: was late\n\tat o\nCaused by: a.B: was late\n"),
        "quota",
        "a.B, message late for topic order",
        "a.B message was late",
    ),
    Case(
        "a transparent wrapper is looked through",
        fails("c10", "java.util.concurrent.ExecutionException", "x", f"java.util.concurrent.ExecutionException: x\nCaused by: {NPE}: y\n"),
        "fatal",
        f"{NPE}",
        NPE,
    ),
    Case(
        "even where a rule knows it",
        fails("order", "java.util.concurrent.ExecutionException"),
        "poison",
        "all others for topic order",
        None,
    ),
    Case("Spring's wrapper and its cause", spring_report(("spring-a", 0, 1), error=NPE), "fatal", f"{NPE}", NPE),
    Case(
        "a cause at the end of a stack of 200 kB",
        fails("c15", "java.util.concurrent.ExecutionException", "x", LONG_STACK),
        "fatal",
        f"{NPE}",
        NPE,
    ),
    Case("a stack that is none", fails("c11", NPE, "x", "no stack at all: \x00 ("), "fatal", f"{NPE}", NPE),
    # ---------- messages of the documents
    Case(
        "PostgreSQL's statement timeout",
        fails("c12", PSQL, "ERROR: canceling statement due to statement timeout"),
        "retriable",
        f"{PSQL}, message {CANCELED}",
        f"{PSQL} message ERROR: {CANCELED}",
    ),
    # ---------- a set that is switched on for a scope, by one row
    *(
        Case(
            f"a set: {error}",
            fails("sets-on", error, message),
            "blocking",
            f"error_sets: outage: {rule} for topic ^sets-",
            matched or error,
        )
        for error, message, rule, matched in (
            # an equal rule of the same scope gives way
            (TIMEOUT, None, TIMEOUT, None),
            ("java.net.ConnectException", None, "java.net.ConnectException+", None),
            ("io.netty.channel.ConnectTimeoutException", None, "java.net.ConnectException+", None),
            ("java.net.UnknownHostException", None, "java.net.UnknownHostException", None),
            (
                "org.springframework.transaction.TransactionTimedOutException",
                None,
                "org.springframework.transaction.TransactionTimedOutException",
                None,
            ),
            *(
                (PSQL, f"ERROR: {fragment}", f"{PSQL}, message {fragment}", f"{PSQL} message ERROR: {fragment}")
                for fragment in (CANCELED, "canceling statement due to user request", "The connection attempt failed")
            ),
        )
    ),
    Case("a set, and a message that it doesn't name", fails("sets-on", PSQL, "deadlock detected"), "retriable", "default: retriable", None),
    Case(
        "a set gives way to a narrower scope",
        fails("sets-narrower", "java.net.UnknownHostException"),
        "quota",
        "java.net.UnknownHostException for topic sets-narrower",
        "java.net.UnknownHostException",
    ),
    Case("a set that is not switched on", fails("sets", TIMEOUT), "retriable", TIMEOUT, TIMEOUT),
    # ---------- codes and headers
    Case(
        "a code by its number",
        fails("codes", "c.C", None, None, ("redrive-error-code", "10")),
        "poison",
        "code MSG_SIZE_TOO_LARGE for topic codes",
        "c.C code 10",
    ),
    Case(
        "a code by its name",
        fails("codes", "c.C", None, None, ("redrive-error-code", "msg_size_too_large")),
        "poison",
        "code MSG_SIZE_TOO_LARGE for topic codes",
        "c.C code MSG_SIZE_TOO_LARGE",
    ),
    Case(
        "a code in confluent-kafka's message",
        fails("codes", "c.C", 'KafkaError{code=MSG_SIZE_TOO_LARGE,val=10,str="x"}'),
        "poison",
        "code MSG_SIZE_TOO_LARGE for topic codes",
        "c.C code MSG_SIZE_TOO_LARGE",
    ),
    Case(
        "any other code",
        fails("codes", "c.C", None, None, ("redrive-error-code", "E42")),
        "fatal",
        "code E42 for topic codes",
        "c.C code E42",
    ),
    Case(
        "a header's value",
        fails("codes", "c.C", None, None, ("status", "429")),
        "quota",
        "header status=429 for topic codes",
        "c.C header 429",
    ),
    Case(
        "a header's value by expression, without a class",
        fails("codes", None, None, None, ("status", "503")),
        "retriable",
        "header status=^5 for topic codes",
        "header 503",
    ),
    Case(
        "a header that is there, without a value",
        fails("codes", "c.C").with_headers(("x-final", None)),
        "fatal",
        "header x-final for topic codes",
        "c.C header",
    ),
    Case(
        "a header that is there",
        fails("codes", "c.C", None, None, ("x-final", "")),
        "fatal",
        "header x-final for topic codes",
        "c.C header",
    ),
    Case(
        "the last of a header's values",
        fails("codes", "c.C", None, None, ("status", "429"), ("status", "200")),
        "retriable",
        "default: retriable",
        None,
    ),
    Case(
        "a header's value, whatever wraps the error",
        fails("codes", LISTENER, "m", f"{LISTENER}: m\n\tat x.Y\nCaused by: c.C: boo\n", ("status", "429")),
        "quota",
        "header status=429 for topic codes",
        "c.C header 429",
    ),
    Case(
        "a header's value, where nothing says what is wrapped",
        fails("codes", LISTENER, "m", None, ("status", "429")),
        "quota",
        "header status=429 for topic codes",
        f"{LISTENER} header 429",
    ),
    Case(
        ASKED_ONCE,
        fails("codes", "c.C", "m", "c.C: m\n\tat x.Y\nCaused by: d.D: boo\n", ("status", "200")),
        "retriable",
        "default: retriable",
        None,
    ),
    # ---------- what the report states
    Case(
        "the report says the kind", fails("c13", NPE, None, None, ("redrive-error-kind", "SNBE")), "retriable", "stated by the report", None
    ),
    Case("a kind that is none", fails("c14", NPE, None, None, ("redrive-error-kind", "\x00soft")), "fatal", f"{NPE}", NPE),
    Case(
        "a source that may not say it",
        fails("spoken-for", "k.K", None, None, ("redrive-error-kind", "fatal"), source="narrow"),
        "retriable",
        "default: retriable",
        None,
    ),
    # ---------- two rules that are equal but for their kind
    Case("fatal before retriable before blocking", fails("equal", "e.E"), "fatal", "e.E for topic equal", "e.E"),
    Case("retriable before blocking", fails("equal", "e.F"), "retriable", "e.F for topic equal", "e.F"),
]
