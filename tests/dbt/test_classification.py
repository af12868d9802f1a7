"""Classification: which rule decides about an error, as a table of cases through all models, with the project's rules and others."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyspark.sql import Row

from tests.dbt.harness import PROJECT, Home, Report, report, spring_report

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


KAFKA: dict[str, tuple[str, str]] = {
    "backpressure": (
        "-184 _QUEUE_FULL",
        "org.apache.kafka.clients.producer.BufferExhaustedException",
    ),
    "quota": (
        "89 THROTTLING_QUOTA_EXCEEDED",
        "org.apache.kafka.common.errors.ThrottlingQuotaExceededException ThrottlingQuotaExceededException "
        "kafka.errors.ThrottlingQuotaExceededError kafka.errors.QuotaViolationError aiokafka.errors.QuotaViolationError",
    ),
    "fenced": (
        "-144 _FENCED  47 INVALID_PRODUCER_EPOCH  90 PRODUCER_FENCED",
        "org.apache.kafka.common.errors.ProducerFencedException ProducerFencedException kafka.errors.ProducerFencedError "
        "aiokafka.errors.ProducerFenced org.apache.kafka.common.errors.InvalidProducerEpochException "
        "kafka.errors.InvalidProducerEpochError "
        "aiokafka.errors.InvalidProducerEpoch org.apache.kafka.common.errors.FencedInstanceIdException kafka.errors.FencedInstanceIdError",
    ),
    "fatal": (
        "-169 _AUTHENTICATION  -181 _SSL  -150 _FATAL  29 TOPIC_AUTHORIZATION_FAILED  30 GROUP_AUTHORIZATION_FAILED  "
        "31 CLUSTER_AUTHORIZATION_FAILED  53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED  58 SASL_AUTHENTICATION_FAILED  "
        "35 UNSUPPORTED_VERSION  48 INVALID_TXN_STATE  21 INVALID_REQUIRED_ACKS",
        "org.apache.kafka.common.errors.TopicAuthorizationException TopicAuthorizationException kafka.errors.TopicAuthorizationFailedError "
        "aiokafka.errors.TopicAuthorizationFailedError org.apache.kafka.common.errors.GroupAuthorizationException "
        "kafka.errors.GroupAuthorizationFailedError org.apache.kafka.common.errors.ClusterAuthorizationException "
        "ClusterAuthorizationException "
        "kafka.errors.ClusterAuthorizationFailedError org.apache.kafka.common.errors.TransactionalIdAuthorizationException "
        "kafka.errors.TransactionalIdAuthorizationFailedError aiokafka.errors.TransactionalIdAuthorizationFailed "
        "org.apache.kafka.common.errors.AuthorizationException kafka.errors.AuthorizationError "
        "org.apache.kafka.common.errors.SaslAuthenticationException SaslAuthenticationException kafka.errors.SaslAuthenticationFailedError "
        "aiokafka.errors.SaslAuthenticationFailed org.apache.kafka.common.errors.SslAuthenticationException "
        "org.apache.kafka.common.errors.AuthenticationException aiokafka.errors.AuthenticationFailedError "
        "aiokafka.errors.AuthenticationMethodNotSupported kafka.errors.UnsupportedSaslMechanismError kafka.errors.IllegalSaslStateError "
        "org.apache.kafka.common.errors.UnsupportedVersionException kafka.errors.UnsupportedVersionError "
        "kafka.errors.IncompatibleBrokerVersion org.apache.kafka.common.errors.InvalidTxnStateException kafka.errors.InvalidTxnStateError "
        "aiokafka.errors.InvalidTxnState org.apache.kafka.common.errors.InvalidRequiredAcksException kafka.errors.InvalidRequiredAcksError "
        "KafkaJSSASLAuthenticationError KafkaJSServerDoesNotSupportApiKey KafkaJSNotImplemented KafkaJSNonRetriableError",
    ),
    "poison": (
        "2 INVALID_MSG CORRUPT_MESSAGE  10 MSG_SIZE_TOO_LARGE MESSAGE_TOO_LARGE MESSAGE_SIZE_TOO_LARGE  "
        "17 TOPIC_EXCEPTION INVALID_TOPIC_EXCEPTION INVALID_TOPIC  18 RECORD_LIST_TOO_LARGE  76 UNSUPPORTED_COMPRESSION_TYPE  "
        "87 INVALID_RECORD  44 POLICY_VIOLATION  -198 _BAD_COMPRESSION",
        "org.apache.kafka.common.errors.CorruptRecordException CorruptRecordException kafka.errors.CorruptRecordError "
        "aiokafka.errors.CorruptRecordException aiokafka.errors.InvalidMessageError org.apache.kafka.common.errors.RecordTooLargeException "
        "RecordTooLargeException kafka.errors.MessageSizeTooLargeError aiokafka.errors.MessageSizeTooLargeError "
        "aiokafka.errors.RecordTooLargeError org.apache.kafka.common.errors.RecordBatchTooLargeException "
        "kafka.errors.RecordListTooLargeError "
        "org.apache.kafka.common.errors.InvalidTopicException kafka.errors.InvalidTopicError "
        "org.apache.kafka.common.errors.UnsupportedCompressionTypeException kafka.errors.UnsupportedCompressionTypeError "
        "kafka.errors.UnsupportedCodecError org.apache.kafka.common.InvalidRecordException kafka.errors.InvalidRecordError "
        "org.apache.kafka.common.errors.PolicyViolationException kafka.errors.PolicyViolationError "
        "KafkaJSPartialMessageError KafkaJSUnsupportedMagicByteInMessageSet KafkaJSInvalidVarIntError KafkaJSInvalidLongError",
    ),
    "retriable": (
        "-190 _UNKNOWN_PARTITION  -188 _UNKNOWN_TOPIC  3 UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_OR_PARTITION  5 LEADER_NOT_AVAILABLE  "
        "6 NOT_LEADER_FOR_PARTITION NOT_LEADER_OR_FOLLOWER  7 REQUEST_TIMED_OUT  8 BROKER_NOT_AVAILABLE  9 REPLICA_NOT_AVAILABLE  "
        "13 NETWORK_EXCEPTION  14 COORDINATOR_LOAD_IN_PROGRESS GROUP_LOAD_IN_PROGRESS  "
        "15 COORDINATOR_NOT_AVAILABLE GROUP_COORDINATOR_NOT_AVAILABLE  19 NOT_ENOUGH_REPLICAS  20 NOT_ENOUGH_REPLICAS_AFTER_APPEND  "
        "74 FENCED_LEADER_EPOCH  75 UNKNOWN_LEADER_EPOCH  -187 _ALL_BROKERS_DOWN  -195 _TRANSPORT  -196 _FAIL  -185 _TIMED_OUT  "
        "-192 _MSG_TIMED_OUT",
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException kafka.errors.UnknownTopicOrPartitionError "
        "org.apache.kafka.common.errors.LeaderNotAvailableException kafka.errors.LeaderNotAvailableError "
        "org.apache.kafka.common.errors.NotLeaderOrFollowerException kafka.errors.NotLeaderForPartitionError "
        "org.apache.kafka.common.errors.TimeoutException kafka.errors.RequestTimedOutError kafka.errors.KafkaTimeoutError "
        "aiokafka.errors.KafkaTimeoutError org.apache.kafka.common.errors.BrokerNotAvailableException kafka.errors.BrokerNotAvailableError "
        "org.apache.kafka.common.errors.ReplicaNotAvailableException kafka.errors.ReplicaNotAvailableError "
        "org.apache.kafka.common.errors.NetworkException kafka.errors.NetworkExceptionError kafka.errors.KafkaConnectionError "
        "org.apache.kafka.common.errors.CoordinatorLoadInProgressException kafka.errors.CoordinatorLoadInProgressError "
        "aiokafka.errors.GroupLoadInProgressError org.apache.kafka.common.errors.CoordinatorNotAvailableException "
        "kafka.errors.CoordinatorNotAvailableError aiokafka.errors.GroupCoordinatorNotAvailableError "
        "org.apache.kafka.common.errors.NotEnoughReplicasException kafka.errors.NotEnoughReplicasError "
        "org.apache.kafka.common.errors.NotEnoughReplicasAfterAppendException kafka.errors.NotEnoughReplicasAfterAppendError "
        "org.apache.kafka.common.errors.FencedLeaderEpochException kafka.errors.FencedLeaderEpochError "
        "org.apache.kafka.common.errors.UnknownLeaderEpochException kafka.errors.UnknownLeaderEpochError kafka.errors.NoBrokersAvailable "
        "kafka.errors.NodeNotReadyError org.apache.kafka.common.errors.DisconnectException KafkaJSConnectionError "
        "KafkaJSConnectionClosedError KafkaJSRequestTimeoutError KafkaJSBrokerNotFound KafkaJSNoBrokerAvailableError "
        "KafkaJSGroupCoordinatorNotFound KafkaJSMetadataNotLoaded KafkaJSTopicMetadataNotLoaded KafkaJSStaleTopicMetadataAssignment "
        "KafkaJSTimeout KafkaJSLockTimeout",
    ),
}
"""Kafka's errors by their kind: numbers, each with its names; and the classes of Java, kafka-python, aiokafka and KafkaJS."""

KAFKA_CODES = [(kind, tuple(error.split())) for kind, (errors, _) in KAFKA.items() for error in errors.split("  ")]


def _kafka_cases() -> list[Case]:
    """Each error as clients report it. None of them is left to the default, which would look at the causes that follow."""
    cases = []
    for kind, (_, classes) in KAFKA.items():
        cause = TIMEOUT if kind == "fatal" else NPE
        cases += [
            Case(error, fails("kafka", error, "x", f"{error}: x\nCaused by: {cause}: y\n"), kind, error, None) for error in classes.split()
        ]
    for kind, (number, name, *others) in KAFKA_CODES:
        # confluent-kafka writes the name into the text
        for error in ("cimpl.KafkaException", "confluent_kafka.error.ProduceError"):
            text = f'KafkaError{{code={name},val={number},str="x"}}'
            cases.append(Case(f"{error} {name}", fails("kafka", error, text), kind, name, None))
        for code in (number, name, *others):
            told = ("redrive-error-code", code)
            cases.append(Case(f"KafkaJSProtocolError {code}", fails("kafka", "KafkaJSProtocolError", "x", None, told), kind, name, None))
    # the last error of several tries stands in the stack
    exceeded = "KafkaJSNumberOfRetriesExceeded"
    stack = f"{exceeded}\n  Caused by: KafkaJSProtocolError: too large\n    at onResponse (connection.js:1:2)"
    reported = fails("kafka", exceeded, "too large", stack, ("redrive-error-code", "MESSAGE_TOO_LARGE"))
    return [*cases, Case(exceeded, reported, "poison", "MSG_SIZE_TOO_LARGE", None)]


KAFKA_CASES = _kafka_cases()


def test_all_of_the_table_of_publish_errors_is_among_the_cases() -> None:
    with (PROJECT / "dbt_project" / "seeds" / "publish_error_kinds.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["error_kind"], (row["code"], row["name"], *row["also_called"].split())) for row in csv.DictReader(file)]
    assert sorted(rows) == sorted(KAFKA_CODES)


def test_every_kafka_error_has_the_kind_that_the_table_gives_it(decided: list[Row]) -> None:
    """Whatever client reports it, by class, number or name."""
    found = decided[len(CASES) :]
    wrong = [
        (case.name, case.kind, row["error_kind"], row["rule"])
        for case, row in zip(KAFKA_CASES, found, strict=True)
        if row["error_kind"] != case.kind or row["rule"] == "default: retriable"
    ]
    assert wrong == []


def _at(reported: Report, place: int) -> Report:
    """The same report, of another record: those of one topic are different messages."""
    return reported.but(
        headers=tuple((name, str(place).encode() if name == "redrive-original-offset" else value) for name, value in reported.headers or ())
    )


@pytest.fixture(scope="module")
def decided(home: Home) -> list[Row]:
    """All cases, in one decide run."""
    causes = home.append_reports(*(_at(case.report, place) for place, case in enumerate([*CASES, *KAFKA_CASES])))
    home.decide()
    decisions = home.decisions()
    return [decisions[cause] for cause in causes]


@pytest.mark.parametrize("place", range(len(CASES)), ids=[case.name for case in CASES])
def test_which_rule_decides(place: int, decided: list[Row]) -> None:
    case, row = CASES[place], decided[place]
    assert (row["error_kind"], row["rule"].removeprefix("error_rules: "), row["matched"]) == (case.kind, case.rule, case.matched)


def test_what_asks_for_no_class_is_passed_over_once_not_for_each_cause(decided: list[Row]) -> None:
    passed_over = decided[[case.name for case in CASES].index(ASKED_ONCE)]["passed_over"]
    assert "error_rules: header status=429 for topic codes" in passed_over
    assert len(passed_over) == len(set(passed_over))


def test_causes_are_read_from_headers_and_stacks(home: Home) -> None:
    chain = home.compiled("{{ cause_chain('wrapper', 'error_class', 'message', 'stack') }}")
    cases = [
        ("W", "C", "m", None, [("W", "m"), ("C", "m")]),
        (None, None, None, None, [(None, None)]),
        (None, "java.lang.RuntimeException", "outer", JAVA_STACK, [
            ("java.lang.RuntimeException", "outer"), ("com.acme.Unheard", "middle"), (TIMEOUT, "Read timed out"),
        ]),
        (None, "RuntimeError", "outer", PYTHON_STACK, [
            ("RuntimeError", "outer"), ("acme.Unheard", "no price"), ("TimeoutError", "timed out"),
        ]),
        (None, "A", None, "A\n\tat x\nCaused by: B\nCaused by: C: \n", [("A", None), ("B", None), ("C", None)]),
        (None, "A", "x", "".join(f"Caused by: C{n}: x\n" for n in range(100)), [("A", "x"), *((f"C{n}", "x") for n in range(15))]),
    ]  # fmt: skip
    rows = [(place, *case[:4]) for place, case in enumerate(cases)]
    frame = home.spark.createDataFrame(rows, "place int, wrapper string, error_class string, message string, stack string")
    read = [row["chain"] for row in frame.selectExpr("place", f"{chain} as chain").orderBy("place").collect()]
    assert [[tuple(cause) for cause in causes] for causes in read] == [case[4] for case in cases]


def test_a_hostile_stack_is_read_in_time_and_in_bounds(home: Home) -> None:
    chain = home.compiled("{{ cause_chain('wrapper', 'error_class', 'message', 'stack') }}")
    stacks = [
        "Caused by: " * 6_000,
        "a." * 32_000,
        "a" * 65_000,
        "Traceback (most recent call last):\n" * 1_800,
        "Traceback (most recent call last):\n" + "\n" * 60_000,
        "Caused by: " + "a" * 60_000 + ": " + "b" * 5_000,
        "\nCaused by: a: " + "\r" * 60_000,
    ]
    frame = home.spark.createDataFrame(
        [(None, "A", "m", stack) for stack in stacks], "wrapper string, error_class string, message string, stack string"
    )
    for row in frame.selectExpr(f"{chain} as chain").collect():
        assert 1 <= len(row["chain"]) <= 16
        assert all(len(cause["error_class"] or "") <= 256 and len(cause["message"] or "") <= 1024 for cause in row["chain"])


HOSTILE: dict[str, list[Callable[[int], str]]] = {
    "{{ cause_chain('wrapper', 'error_class', 'message', 'text') }}": [
        lambda size: _repeated("Traceback (most recent call last):\n", size),
        lambda size: "Traceback (most recent call last):" + "\n" * size,
        lambda size: _repeated("Traceback (most recent call last):\nE: x\n", size),
        lambda size: "Traceback (most recent call last):\n" + "a." * (size // 2) + "!",
        lambda size: "Traceback (most recent call last):\n" + _repeated("a: b\r", size),
        lambda size: _repeated("Caused by: ", size),
        lambda size: "".join(f"Caused by: C{number:05}: x\n" for number in range(size // 20)),
        lambda size: "A\nCaused by: " + "a." * (size // 2) + "!",
        lambda size: "A" + "\n" * size,
        lambda size: "A: " + _repeated("\rCaused by: a: ", size),
    ],
    "{{ error_pattern('error_class', 'message', 'text') }}": [
        lambda size: "\n" * size,
        lambda size: " \t" * (size // 2),
        lambda size: _repeated("\n at ", size),
        lambda size: "\n at " + "a/" * (size // 2),
        lambda size: "\n at " + "java/" * (size // 5),
        lambda size: _repeated('File "', size),
        lambda size: _repeated('File "a", line 1', size),
        lambda size: 'File "' + "/" * size + '", line 1, in x',
        lambda size: "\n at a$" + "a" * size + "(",
        lambda size: _repeated("Caused by: ", size),
    ],
    "{{ message_pattern('text') }}": [
        *(lambda size, quote=quote: quote * size for quote in "\"'`“”„«»‘’"),
        lambda size: _repeated("„“", size),
        lambda size: "a" * size,
        lambda size: "1" * size,
        lambda size: "1." * (size // 2),
        lambda size: _repeated("0x1 ", size),
        lambda size: _repeated("12345678-1234-", size),
        lambda size: " \n" * (size // 2),
    ],
}  # fmt: skip
"""Text of about a size that an expression of ours might look through again and again."""


def _repeated(text: str, size: int) -> str:
    return text * (size // len(text))


@pytest.mark.parametrize("expression", HOSTILE, ids=lambda expression: expression.split("(")[0].strip("{ "))
def test_the_time_for_hostile_texts_grows_with_their_length_not_with_its_square(home: Home, expression: str) -> None:
    """Four times the text takes four times as long; an expression that looks through it again at each place would take 16 times."""
    compiled = home.compiled(expression)

    def seconds(size: int) -> float:
        rows = [(None, "A", "m", text(size)) for text in HOSTILE[expression]]
        frame = home.spark.createDataFrame(rows, "wrapper string, error_class string, message string, text string").coalesce(1).cache()
        frame.count()
        # each text twice, so that starting a query is the smaller part
        query = frame.selectExpr("*", "explode(sequence(1, 2)) as copy").selectExpr(f"sum(hash({compiled})) as sum")
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            query.collect()
            taken.append(time.perf_counter() - began)
        frame.unpersist()
        return min(taken)

    assert seconds(128_000) / seconds(32_000) < 8
