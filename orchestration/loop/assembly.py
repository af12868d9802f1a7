"""The steps of a loop, put together with what each of them needs."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from orchestration.kafka.json_topics import JsonTopic
from orchestration.kafka.topics import TopicMaker
from orchestration.loop.circuit_breaker import gate_record_of, record_of
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.command_dispatch import CommandDispatch
from orchestration.loop.commands import ISSUED_AT_ONCE, Commands
from orchestration.loop.consumer_progress import Consumers
from orchestration.loop.decide import Decide
from orchestration.loop.decision_feed import DecisionFeedWriter
from orchestration.loop.direct_sends import DirectSends
from orchestration.loop.feeds import CircuitBreakerFeed, DecisionFeed
from orchestration.loop.followers import Followers
from orchestration.loop.hand_over import HandOver
from orchestration.loop.intake import Intake
from orchestration.loop.intake_step import IntakeStep
from orchestration.loop.leadership import Leadership
from orchestration.loop.missing_topics import MissingTopics, originals_of
from orchestration.loop.open_sequences import OpenSequences
from orchestration.loop.outbox_steps import OutboxIntake, OutboxWriteBack
from orchestration.loop.outboxes import Outboxes
from orchestration.loop.publish import Publish
from orchestration.loop.read_back import ReadBack
from orchestration.loop.recovery import Recovery
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.sequence_feed import SequenceFeed
from orchestration.loop.settle import Settle
from orchestration.loop.state import LoopState
from orchestration.loop.steps import Step
from orchestration.loop.stored import Stored
from orchestration.loop.table_sources import TableIntake, TableSources, divided
from orchestration.loop.undecided import Undecided
from orchestration.tables.decide_statements import DecideRunner


@dataclass(frozen=True)
class Steps:
    """The steps, in the order of a tick. recovery: handles a step that failed."""

    rules: RulesInForce
    take_in: IntakeStep
    take_tables: TableIntake
    take_rows: OutboxIntake
    dispatch: CommandDispatch
    decide: Decide
    publish: Publish
    write_back: OutboxWriteBack
    settle: Settle
    decision_feed: DecisionFeed
    breaker_feed: CircuitBreakerFeed
    sequence_feed: SequenceFeed
    recovery: Recovery

    @property
    def intake(self) -> tuple[IntakeStep, TableIntake, OutboxIntake]:
        """The steps that take in: reports of topics, of tables, and rows of outboxes."""
        return self.take_in, self.take_tables, self.take_rows

    def kept(self) -> None:
        """Called after a row of `ticks` has recorded how far everything is read, and what has settled."""
        self.take_in.intake.kept()
        self.take_tables.kept()
        self.settle.unrecorded.clear()

    @property
    def feeds(self) -> tuple[Step, ...]:
        """The steps that write topics for others."""
        return self.decision_feed, self.breaker_feed, self.sequence_feed

    @property
    def outboxes(self) -> Outboxes:
        """The outbox tables."""
        return self.take_rows.outboxes

    def close(self) -> None:
        """Closes the clients of steps that take in."""
        self.take_in.intake.close()
        self.take_rows.direct.end()

    def use_rules(self) -> None:
        """Passes the loaded seeds on to the steps that use them."""
        topics, tables = divided(self.rules.seeds.rows["sources"])
        self.take_in.intake.use(topics)
        self.take_tables.sources.use(tables)
        self.outboxes.use(self.rules.seeds.rows["outboxes"])
        self.take_rows.direct.use_rules()
        self.publish.leadership.renew_bulk_lane()


def assembled(
    state: LoopState, stored: Stored, breakers: CircuitBreakers, leadership: Leadership, sending: threading.Lock, stopping: threading.Event
) -> Steps:
    """The steps of a loop that is in charge. state: the state they begin with."""
    spark, schema, ledgers, clock = stored.spark, stored.schema, stored.ledgers, stored.clock
    settings, cluster, health, rules = leadership.settings, leadership.cluster, leadership.health, leadership.rules
    undecided = Undecided(stored, breakers)
    topics, tables = divided(rules.seeds.rows["sources"])
    intake = Intake(spark, settings, cluster, ledgers, topics, state.offsets)
    outboxes = Outboxes(spark, schema, settings, ledgers, rules.seeds.rows["outboxes"])
    hand_over = HandOver(leadership, clock, timedelta(seconds=settings.look_ahead_seconds), settings.transactions)
    read_back = ReadBack(leadership, hand_over, clock)
    if state.unrecorded_since is not None:
        read_back.after(state.unrecorded_since, is_fenced=True)
    direct = DirectSends(leadership, health, clock, sending, lambda: publish.knows_what_was_sent, read_back.after)

    def withdraw(ids: Collection[str]) -> None:
        hand_over.withdraw(ids=ids)
        direct.look_again()

    most = min(settings.intake_max_rows, ISSUED_AT_ONCE)
    commands = Commands(spark, schema, ledgers, state.commands, most, withdraw=withdraw)
    consumers = Consumers(spark, schema, cluster, breakers.settle, state.awaited_batch, rules.keeps_order_of, lambda: rules.keeps_sequences)
    consumers.remember(state.awaited)
    open_sequences = OpenSequences(spark, schema, lambda: rules.keeps_sequences, lambda: rules.hash)
    followers = Followers(spark, schema, ledgers, open_sequences, most)

    def json_topic(topic: str, transactional_id: str | None = None) -> JsonTopic:
        return JsonTopic(cluster, settings.kafka_properties, topic, transactional_id)

    name = f"{settings.transactional_prefix}.{settings.instance}.sequences" if settings.transactions else None
    sequences = json_topic(settings.sequences_topic, name) if settings.sequences_topic else None

    missing_topics = MissingTopics(TopicMaker(cluster, settings), lambda windows, now: originals_of(leadership.bulk_lane, windows, now))
    publish = Publish(leadership, breakers, undecided, missing_topics, health, clock, sending, stopping, hand_over, read_back)
    writer = DecisionFeedWriter(spark, schema, json_topic(settings.decisions_topic)) if settings.decisions_topic else None
    breaker_topics = ((settings.circuit_breakers_topic, record_of), (settings.gates_topic, gate_record_of))
    return Steps(
        rules=rules,
        take_in=IntakeStep(intake, health, hand_over.lane.finish_send),
        take_tables=TableIntake(TableSources(spark, ledgers, tables, hand_over.lane.finish_send), health, settings.intake_max_rows),
        take_rows=OutboxIntake(outboxes, health, direct),
        dispatch=CommandDispatch(commands, intake, health),
        decide=Decide(DecideRunner(spark, schema, rules.dbt), undecided, breakers, rules, health, clock, stopping, hand_over),
        publish=publish,
        write_back=OutboxWriteBack(outboxes, health),
        settle=Settle(consumers, breakers, followers, commands, ledgers, health),
        decision_feed=DecisionFeed(writer, health),
        breaker_feed=CircuitBreakerFeed(tuple((json_topic(name), form) for name, form in breaker_topics if name), breakers, health),
        sequence_feed=SequenceFeed(sequences, open_sequences, intake.discovery, health),
        recovery=Recovery(undecided),
    )
