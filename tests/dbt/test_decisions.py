"""What is decided about a failure: from its delay to the decision, through the steps of models/retry/4_decide.

dbt's unit tests replace what a model reads, and no more: these look at four models at once, on rows in place of `delays_computed`.
"""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from tests.dbt.harness import Home

# The step whose rows are made up here, and the one after it: what dbt compiles from there on is under test.
_GIVEN, _FIRST = "__dbt__cte__delays_computed", "__dbt__cte__reasons_given"


@pytest.fixture(scope="module")
def steps(home: Home) -> str:
    """The SQL of the steps, each a named subquery; the last is `__dbt__cte__decisions_made`."""
    compiled = home.compiled("select * from {{ ref('decisions_made') }}")
    return compiled[compiled.index(f"{_FIRST} as (") :]


def _decided(home: Home, steps: str, given: str, columns: list[str]) -> list[dict[str, str | None]]:
    """The decisions on rows, in the order of their input_ids; values as text."""
    rows = home.spark.sql(f"with {_GIVEN} as ({jinja2.Template(given).render()}), {steps}")
    return sorted(
        (row.asDict() for row in rows.selectExpr(*(f"cast({column} as string) as {column}" for column in columns)).collect()),
        key=lambda row: str(row["input_id"]),
    )


def _expected(rows: list[dict[str, Any]]) -> list[dict[str, str | None]]:
    return sorted(
        ({name: None if value is None else str(value) for name, value in row.items()} for row in rows), key=lambda row: str(row["input_id"])
    )


_A_FAILURE_IS_RETRIED_UNTIL_IT_IS_DEAD_AND_GOES_NOWHERE_ELSE = """
select
    failures.*,
    case
        when standing <> 'orphan'
            then struct(
                'default' as policy, 'text' as definition, max_elapsed as max_elapsed_ms, on_exhausted as on_exhausted,
                cast(null as bigint) as max_attempts
            )
    end as policy,
    array('^fail') as source_topics,
    'hash' as rules_hash,
    timestamp '2026-03-01 12:00:00' as recorded_at,
    timestamp '2026-03-01 11:59:58' as failed_at,
    'report' as input_kind,
    input_id like 'adopted%' as adopts,
    'failures' as report_topic,
    case when input_id like 'parked%' then 'none' else concat(original_topic, '.{kind}.dlq') end as dead_letter_topic,
    cast(null as struct<
        delivery_id: string, due_at: timestamp, kind: string, topic: string, headers: array<string>, failed_at: timestamp,
        first_failed_at: timestamp,
        error_class: string, error_message: string, error_stack: string, error_kind: string, rule: string, matched: string,
        header_profile: string, privacy: string, outbox_row: string, sequence: string, sequence_place: bigint,
        sequence_epoch: string
    >) as answered,
    {%- for column in [
        'batch', 'source', 'dialect', 'life_cycle', 'original_partition', 'original_offset', 'original_timestamp',
        'report_partition', 'report_offset', 'report_index', 'happened_at', 'problems', 'content_hash',
        'message_id', 'error_class', 'error_message', 'rule', 'matched', 'passed_over', 'header_profile', 'privacy'
    ] %}
    null as {{ column }},
    {%- endfor %}
    'topic' as circuit_breaker_per,
    'key' as sequence_by,
    false as is_sequence_hidden,
    'record' as publish_charge,
    cast(null as string) as order_detail,
    0 as publish_attempt,
    false as is_failed_publication
from values
    ('retried', 'first', 'retriable', 1, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('known late', 'first', 'retriable', 1, 5, 'orders', 'billing', '{topic}-{group}-retry', 1000, null, 'dead_letter'),
    ('without end', 'answer', 'retriable', 99, null, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('exhausted', 'answer', 'retriable', 5, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('dropped', 'answer', 'retriable', 5, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'drop'),
    ('in time', 'answer', 'quota', 2, null, 'orders', 'billing', '{topic}-{group}-retry', 3000, 3000, 'dead_letter'),
    ('out of time', 'answer', 'retriable', 2, null, 'orders', 'billing', '{topic}-{group}-retry', 3001, 3000, 'dead_letter'),
    ('no room', 'answer', 'backpressure', 5, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, 1, 'drop'),
    ('a bug', 'first', 'fatal', 1, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('unknown group', 'first', 'retriable', 1, 5, 'orders', null, '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('back into a source', 'first', 'retriable', 1, 5, 'fail', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('no legal name', 'first', 'retriable', 1, 5, 'orders', 'a b', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('repeated', 'known_already', 'retriable', null, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('adopted', 'first', 'retriable', 1, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'drop'),
    ('adopted from anywhere', 'orphan', 'fatal', 1, 5, 'fail', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('adopted before', 'known_already', 'fatal', null, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('parked', 'first', 'fatal', 1, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('parked, without a group', 'answer', 'retriable', 5, 5, 'orders', null, '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('parked not yet', 'first', 'retriable', 1, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'dead_letter'),
    ('parked never', 'answer', 'retriable', 5, 5, 'orders', 'billing', '{topic}-{group}-retry', 3000, null, 'drop')
    as failures (
        input_id, standing, error_kind,
        attempt, max_attempts, original_topic, consumer_group, retry_topic, delay_ms, max_elapsed, on_exhausted
    )
"""


def test_a_failure_is_retried_until_it_is_dead_and_goes_nowhere_else(home: Home, steps: str) -> None:
    """Fatal at once, retriable until max_attempts. A retry is due after its delay, and never before it was known. What a template needs
    and nobody knows, what no source may see again, and what is no legal name, goes elsewhere or nowhere."""
    columns = ["input_id", "decision", "reason", "kind", "topic", "due_at"]
    expected = [
        ("retried", "retry", "retriable", "retry", "orders-billing-retry", "2026-03-01 12:00:01"),
        ("known late", "retry", "retriable", "retry", "orders-billing-retry", "2026-03-01 12:00:00"),
        ("without end", "retry", "retriable", "retry", "orders-billing-retry", "2026-03-01 12:00:01"),
        ("exhausted", "dead_letter", "exhausted", "dead_letter", "orders.retriable.dlq", "2026-03-01 12:00:00"),
        ("dropped", "dropped", "exhausted", None, None, "2026-03-01 12:00:00"),
        ("in time", "retry", "quota", "retry", "orders-billing-retry", "2026-03-01 12:00:01"),
        ("out of time", "dead_letter", "out_of_time", "dead_letter", "orders.retriable.dlq", "2026-03-01 12:00:00"),
        ("no room", "retry", "backpressure", "retry", "orders-billing-retry", "2026-03-01 12:00:01"),
        ("a bug", "dead_letter", "fatal", "dead_letter", "orders.fatal.dlq", "2026-03-01 12:00:00"),
        ("unknown group", "retry", "retriable", "retry", "orders", "2026-03-01 12:00:01"),
        ("back into a source", "refused", "destination_is_a_source", None, None, "2026-03-01 12:00:00"),
        ("no legal name", "refused", "destination_not_legal", None, None, "2026-03-01 12:00:00"),
        ("repeated", "duplicate", "known_already", None, None, "2026-03-01 12:00:00"),
        ("adopted", "adopted", "adopted", None, None, "2026-03-01 12:00:00"),
        ("adopted from anywhere", "adopted", "adopted", None, None, "2026-03-01 12:00:00"),
        ("adopted before", "duplicate", "known_already", None, None, "2026-03-01 12:00:00"),
        ("parked", "parked", "fatal", None, None, "2026-03-01 12:00:00"),
        ("parked, without a group", "parked", "exhausted", None, None, "2026-03-01 12:00:00"),
        ("parked not yet", "retry", "retriable", "retry", "orders-billing-retry", "2026-03-01 12:00:01"),
        ("parked never", "dropped", "exhausted", None, None, "2026-03-01 12:00:00"),
    ]
    rows = [dict(zip(columns, row, strict=True)) for row in expected]
    assert _decided(home, steps, _A_FAILURE_IS_RETRIED_UNTIL_IT_IS_DEAD_AND_GOES_NOWHERE_ELSE, columns) == _expected(rows)


def test_only_first_failures_and_answers_are_of_a_sequence(home: Home, steps: str) -> None:
    """Other inputs may be decided under the topic of their reports: they would hold what fails in that topic."""
    found = _decided(home, steps, _A_FAILURE_IS_RETRIED_UNTIL_IT_IS_DEAD_AND_GOES_NOWHERE_ELSE, ["input_id", "sequence_by"])
    assert {row["input_id"] for row in found if row["sequence_by"] is None} == {"adopted before", "adopted from anywhere", "repeated"}


_THE_FIRST_ANSWER_THAT_ANYTHING_COMES_OF_IS_THE_SUCCESSOR = """
select
    inputs.*,
    message as message_id,
    case
        when standing = 'answer'
            then named_struct(
                'delivery_id', message, 'due_at', timestamp '2026-03-01 11:00:00', 'kind', 'retry', 'topic', 'old-retry',
                'headers', array('kept'), 'failed_at', timestamp '2026-03-01 11:00:00',
                'first_failed_at', timestamp '2026-03-01 10:00:00', 'error_class', 'KeyError',
                'error_message', 'boo', 'error_stack', 'at line 1', 'error_kind', 'fatal', 'rule', 'error_rules: KeyError',
                'matched', 'KeyError', 'header_profile', 'spring', 'privacy', 'of then',
                'outbox_row', cast(null as string), 'sequence', cast(null as string), 'sequence_place', cast(null as bigint),
                'sequence_epoch', cast(null as string)
            )
    end as answered,
    false as is_failed_publication,
    timestamp '2026-03-01 12:00:00' as recorded_at,
    timestamp '2026-03-01 12:00:00' as failed_at,
    2 as attempt,
    1 as publish_attempt,
    5 as max_attempts,
    'retriable' as error_kind,
    'billing' as consumer_group,
    '{topic}-{group}-retry' as retry_topic,
    '{topic}.dlq' as dead_letter_topic,
    false as adopts,
    'failures' as report_topic,
    0 as report_partition,
    0 as report_index,
    struct(
        'default' as policy, 'text' as definition, cast(null as bigint) as max_elapsed_ms, 'dead_letter' as on_exhausted,
        cast(null as bigint) as max_attempts
    ) as policy,
    'topic' as circuit_breaker_per,
    '' as sequence_by,
    false as is_sequence_hidden,
    'record' as publish_charge,
    array('^fail') as source_topics,
    'hash' as rules_hash,
    {%- for column in [
        'source', 'dialect', 'life_cycle', 'original_partition', 'original_offset', 'original_timestamp',
        'problems', 'content_hash', 'error_class',
        'error_message', 'rule', 'matched', 'passed_over', 'header_profile', 'privacy', 'order_detail'
    ] %}
    cast(null as string) as {{ column }},
    {%- endfor %}
    cast(null as timestamp) as happened_at,
    1000 as delay_ms
from values
    ('first answer', 'answer', 'report', 'orders', 'a', 1, 1),
    ('again', 'answer', 'report', 'orders', 'a', 1, 2),
    ('later', 'answer', 'report', 'orders', 'a', 2, 0),
    ('failed send', 'answer', 'failed_send', 'orders', 'a', 1, 0),
    ('refused', 'answer', 'report', 'fail', 'b', 1, 1),
    ('answer after a refused one', 'answer', 'failed_send', 'orders', 'b', 1, 2),
    ('too late after both', 'answer', 'report', 'orders', 'b', 2, 1),
    ('refused, and again', 'first', 'report', 'fail', 'c', 1, 1),
    ('refused again', 'first', 'report', 'fail', 'c', 1, 2),
    ('first of a message', 'first', 'report', 'orders', 'c', 1, 3),
    ('known', 'first', 'report', 'orders', 'c', 1, 4),
    ('known, in its next life cycle', 'new_life_cycle', 'report', 'orders', 'c', 2, 5),
    ('discard', 'answer', 'discard', 'orders', 'd', 1, 1),
    ('after what is only said', 'answer', 'report', 'orders', 'd', 1, 2)
    as inputs (input_id, standing, input_kind, original_topic, message, batch, report_offset)
"""


def test_the_first_answer_that_anything_comes_of_is_the_successor(home: Home, steps: str) -> None:
    """The report before the failed result, the earlier batch before the later. What is refused takes nobody's turn: neither that of an
    answer nor that of a report of the same failure."""
    columns = ["input_id", "decision", "reason", "attempt", "publish_attempt", "topic", "prior_delivery"]
    expected = [
        ("first answer", "retry", "retriable", 2, 1, "orders-billing-retry", "a"),
        ("again", "duplicate", "answered_already", None, 0, None, "a"),
        ("later", "duplicate", "answered_already", None, 0, None, "a"),
        ("failed send", "duplicate", "answered_already", None, 0, None, "a"),
        ("refused", "refused", "destination_is_a_source", 2, 1, None, "b"),
        ("answer after a refused one", "retry", "retriable", 2, 1, "orders-billing-retry", "b"),
        ("too late after both", "duplicate", "answered_already", None, 0, None, "b"),
        ("refused, and again", "refused", "destination_is_a_source", 2, 1, None, None),
        ("refused again", "refused", "destination_is_a_source", 2, 1, None, None),
        ("first of a message", "retry", "retriable", 2, 1, "orders-billing-retry", None),
        ("known", "duplicate", "known_already", None, 0, None, None),
        ("known, in its next life cycle", "duplicate", "known_already", None, 0, None, None),
        ("discard", "discarded", "discard", 2, 1, None, "d"),
        ("after what is only said", "retry", "retriable", 2, 1, "orders-billing-retry", "d"),
    ]
    rows = [dict(zip(columns, row, strict=True)) for row in expected]
    assert _decided(home, steps, _THE_FIRST_ANSWER_THAT_ANYTHING_COMES_OF_IS_THE_SUCCESSOR, columns) == _expected(rows)


_WHAT_BECOMES_OF_A_SEND_THAT_FAILED_AND_OF_ONE_THAT_WAS_HELD = """
select
    failures.*,
    'answer' as standing,
    named_struct(
        'delivery_id', 'prior', 'due_at', timestampadd(second, publish_attempt, timestamp '2026-03-01 11:00:00'),
        'kind', kind_before, 'topic', topic_before,
        'headers', array('kept'), 'failed_at', timestamp '2026-03-01 11:00:00',
        'first_failed_at', timestamp '2026-03-01 10:00:00', 'error_class', 'KeyError',
        'error_message', 'boo', 'error_stack', 'at line 1', 'error_kind', 'fatal', 'rule', 'error_rules: KeyError',
        'matched', 'KeyError', 'header_profile', 'spring', 'privacy', 'of then',
        'outbox_row', cast(null as string), 'sequence', cast(null as string), 'sequence_place', cast(null as bigint),
                'sequence_epoch', cast(null as string)
    ) as answered,
    false as is_failed_publication,
    timestamp '2026-03-01 12:00:00' as recorded_at,
    timestamp '2026-03-01 12:00:00' as failed_at,
    'SENDING' as error_class,
    5 as attempt,
    5 as max_attempts,
    'orders' as original_topic,
    'billing' as consumer_group,
    '{topic}-{group}-retry' as retry_topic,
    '{topic}.dlq' as dead_letter_topic,
    false as adopts,
    cast(null as string) as report_topic,
    struct(
        'publish' as policy, 'text' as definition, cast(null as bigint) as max_elapsed_ms, 'dead_letter' as on_exhausted,
        3 as max_attempts
    ) as policy,
    'partition' as circuit_breaker_per,
    '' as sequence_by,
    false as is_sequence_hidden,
    'all' as publish_charge,
    array('^fail') as source_topics,
    'hash' as rules_hash,
    {%- for column in [
        'batch', 'source', 'dialect', 'life_cycle', 'original_offset', 'original_timestamp',
        'report_partition', 'report_offset', 'report_index', 'happened_at', 'problems', 'content_hash',
        'message_id', 'error_message', 'rule', 'matched', 'passed_over'
    ] %}
    null as {{ column }},
    {%- endfor %}
    'safi' as header_profile,
    'of today' as privacy,
    7 as original_partition,
    cast(null as string) as order_detail,
    case when input_kind = 'failed_send' then 2000 else 0 end as delay_ms
from values
    ('of a retry', 'failed_send', 'poison', 'retry', 'orders-billing-retry', 1),
    ('of a retry, passing', 'failed_send', 'quota', 'retry', 'orders-billing-retry', 2),
    ('of a retry, too often', 'failed_send', 'fenced', 'retry', 'orders-billing-retry', 3),
    ('of a retry, without room', 'failed_send', 'backpressure', 'retry', 'orders-billing-retry', 4),
    ('of a dead letter', 'failed_send', 'retriable', 'dead_letter', 'old.dlq', 20),
    ('of a dead letter, often', 'failed_send', 'retriable', 'dead_letter', 'old.dlq', 34),
    ('of a dead letter, for ever', 'failed_send', 'retriable', 'dead_letter', 'old.dlq', 1000000),
    ('released', 'release', null, 'retry', 'old-retry', 0)
    as failures (input_id, input_kind, error_kind, kind_before, topic_before, publish_attempt)
"""


_NOON, _SOON, _LATER, _NEXT_DAY = "2026-03-01 12:00:00", "2026-03-01 12:00:02", "2026-03-01 12:00:03.959", "2026-03-02 12:00:00"
# error_class, failed_at, privacy: of the send that failed, or of the failure that was known before
_NEW, _KEPT = ("SENDING", _NOON, "of today"), ("KeyError", "2026-03-01 11:00:00", "of then")
# breaker_key, publish_charge, header_profile
_TO_RETRY, _DEAD, _DEAD_AS_BEFORE = ("billing:orders/7", "all", None), (None, None, "safi"), (None, None, "spring")

_COLUMNS_OF_SENDS = [
    *("input_id", "named_after", "decision", "reason", "topic", "due_at", "error_kind"),
    *("error_class", "failed_at", "privacy"),
    *("breaker_key", "publish_charge", "header_profile"),
]

_DECIDED_OF_SENDS: list[tuple[str | None, ...]] = [
    ("of a retry", "prior", "dead_letter", "send_failed", "orders.dlq", _NOON, "poison", *_NEW, *_DEAD),
    ("of a retry, passing", "prior", "retry", "quota", "orders-billing-retry", _SOON, "quota", *_NEW, *_TO_RETRY),
    ("of a retry, without room", "prior", "retry", "backpressure", "orders-billing-retry", _SOON, "backpressure", *_NEW, *_TO_RETRY),
    ("of a retry, too often", "prior", "dead_letter", "send_failed", "orders.dlq", _NOON, "fenced", *_NEW, *_DEAD),
    ("of a dead letter", "prior", "dead_letter", "dead_letter_failed", "old.dlq", _SOON, "fatal", *_KEPT, *_DEAD_AS_BEFORE),
    ("of a dead letter, often", "prior", "dead_letter", "dead_letter_failed", "old.dlq", _LATER, "fatal", *_KEPT, *_DEAD_AS_BEFORE),
    ("of a dead letter, for ever", "prior", "dead_letter", "dead_letter_failed", "old.dlq", _NEXT_DAY, "fatal", *_KEPT, *_DEAD_AS_BEFORE),
    ("released", "released", "retry", "release", "old-retry", _NOON, "fatal", *_KEPT, *_TO_RETRY),
]


def test_what_becomes_of_a_send_that_failed_and_of_one_that_was_held(home: Home, steps: str) -> None:
    """A retry that Kafka refuses is dead at once; where all failed sends count, one that passes is sent again until they are too many;
    want of room is no reason to die, though they are more than a bound that was lowered. A dead letter that it refuses is succeeded
    by another after a pause, to the same topic, named after the one that failed, and with the reason of death: without end, whatever
    the attempts. What a circuit breaker held goes where it was to go, at once, for the reason it had."""
    rows = [dict(zip(_COLUMNS_OF_SENDS, row, strict=True)) for row in _DECIDED_OF_SENDS]
    decided = _decided(home, steps, _WHAT_BECOMES_OF_A_SEND_THAT_FAILED_AND_OF_ONE_THAT_WAS_HELD, _COLUMNS_OF_SENDS)
    assert decided == _expected(rows)
