"""The steps that write JSON topics for others: the decision feed, and the state of circuit breakers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from orchestration.kafka.cluster import ClusterError
from orchestration.kafka.json_topics import JsonTopic, JsonTopicError
from orchestration.loop.circuit_breaker import CircuitBreaker
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.decision_feed import DecisionFeedWriter
from orchestration.loop.health import CIRCUIT_BREAKERS, DECISION_FEED, Health, Reason
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult


@dataclass
class DecisionFeed:
    """Writes what was decided since the last time. writer: None where `decisions_topic` is empty."""

    writer: DecisionFeedWriter | None
    health: Health

    def begin(self, state: LoopState) -> StepResult:
        """At a start: goes on after the last batch that the loop before wrote; if it had no feed, after the watermark."""
        report = StepReport(state)
        if self.writer is None:
            report.change(feed_batch=None)
        elif state.feed_batch is None:
            report.change(feed_batch=state.watermark)
        return report.result()

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Writes a bounded number of decisions."""
        report = StepReport(state)
        after = state.feed_batch
        if self.writer is None or after is None or after >= state.watermark:
            return report.result()
        if not self.health.may(DECISION_FEED) or self.health.unsure:
            return report.result()
        began = time.monotonic()
        try:
            written = self.writer.write(after, state.watermark)
        except (JsonTopicError, ClusterError) as error:
            report.failed(DECISION_FEED, delayed("the decision feed is delayed; it is tried again", error))
            return report.result()
        except Exception as error:
            return report.result(error)
        report.recovered(DECISION_FEED)
        report.change(feed_batch=written.upto)
        report.count("decision_feed", written.decisions)
        report.has_more = written.upto < state.watermark
        report.took("decision_feed", began)
        return report.result()


@dataclass
class CircuitBreakerFeed:
    """Writes the state of the circuit breakers that have changed.

    topics: each with the function that makes its records; empty if neither `circuit_breakers_topic` nor `gates_topic` is set.
    """

    topics: tuple[tuple[JsonTopic, Callable[[str, CircuitBreaker], str]], ...]
    breakers: CircuitBreakers
    health: Health

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Writes all changes since the last time."""
        report = StepReport(state)
        if not self.topics:
            self.breakers.changed.clear()
            return report.result()
        if not self.breakers.changed or not self.health.may(CIRCUIT_BREAKERS):
            return report.result()
        try:
            with self.breakers.of(report):
                for topic, record_of in self.topics:
                    topic.write(self.breakers.records(record_of))
        except (JsonTopicError, ClusterError) as error:
            report.failed(CIRCUIT_BREAKERS, delayed("the state of circuit breakers is not written; it is tried again", error))
            return report.result()
        report.recovered(CIRCUIT_BREAKERS)
        self.breakers.changed.clear()
        return report.result()


def delayed(what: str, error: JsonTopicError | ClusterError) -> Reason:
    """The reason for which a topic for others is behind."""
    return Reason(f"{what}: {error}", error.name if isinstance(error, ClusterError) else None)
