"""Which loop is in charge, as Kafka knows it: only that one sends. docs/decisions/0040 says in which order a start takes over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from orchestration.kafka.cluster import Cluster, ClusterError
from orchestration.logs import event
from orchestration.loop.health import KAFKA, SENDS, Health, Reason
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.sending import PublishStep
from orchestration.loop.steps import StepReport
from orchestration.loop.stored import Stored
from orchestration.rules.topic_patterns import is_source
from orchestration.settings import Settings
from publisher import PublisherSettings, SessionLostError, SupersededError, error_kinds_from_rows, refuse_superseded, take_charge

log = logging.getLogger(__name__)

# How long Kafka has to say, at the beginning of a tick, which loop is in charge, in milliseconds: each send asks once more.
_GLANCE_MS = 1_000


@dataclass
class Charge:
    """The generation of this loop in Kafka, and the publisher that sends with it.

    stored: of the generation that this loop takes; a start that has to read again replaces it. superseded: ends this loop, as the one of
    another generation is in charge.
    """

    settings: Settings
    cluster: Cluster
    rules: RulesInForce
    health: Health
    superseded: Callable[[int], None]
    in_charge: bool = False
    stored: Stored = field(init=False)
    publisher: PublishStep = field(init=False)
    _fence_topics: tuple[str, ...] = ()

    @property
    def generation(self) -> int:
        """The generation of this loop."""
        return self.stored.ledgers.generation

    def renew_publisher(self) -> None:
        """Sends from now on with the generation, the topics and the error kinds of this moment."""
        self.publisher = PublishStep(
            spark=self.stored.spark,
            schema=self.stored.schema,
            ledgers=self.stored.ledgers,
            settings=PublisherSettings(
                kafka=dict(self.settings.kafka_properties),
                error_kinds=error_kinds_from_rows(row.values for row in self.rules.seeds.rows["publish_error_kinds"]),
                transactional_prefix=self.settings.transactional_prefix,
                instance=self.settings.instance,
                generation=self.generation,
                fence_topics=self._fence_topics,
                transactions=self.settings.transactions,
            ),
            slots=self.settings.slots,
            max_rows=self.settings.publish_max_rows,
            max_bytes=self.settings.publish_max_bytes,
        )

    def fence(self) -> None:
        """Tells Kafka that this loop is in charge: what older ones still send is fenced. Raises ClusterError, SessionLostError.

        The generation is kept beside the offsets of the sources' topics, as those are the ones that a loop may certainly read.
        """
        self._fence_topics = tuple(sorted(name for name in self.cluster.topic_names() if is_source(self.rules.seeds, name)))
        self.renew_publisher()
        take_charge(self.publisher.settings, self._fence_topics, max(self.stored.most_slots(), self.settings.slots))
        self.in_charge = True

    def take_first(self) -> None:
        """Takes the generation in Kafka at a start, if Kafka answers."""
        try:
            self.fence()
        except SupersededError as error:
            if not self._knows(error.by):
                self.superseded(error.by)
            # else it is starting just now: whoever appends to the tables first is in charge, and the other one tries again
        except (ClusterError, SessionLostError) as error:
            self.health.failed(SENDS, _cannot_send(error))

    def take(self, report: StepReport) -> bool:
        """Takes the generation in Kafka, where the start could not: before the first send."""
        try:
            self.fence()
        except SupersededError as error:
            self._knows(error.by)
            report.superseded_by = error.by
            return False
        except (ClusterError, SessionLostError) as error:
            report.failed(SENDS, _cannot_send(error))
            return False
        self.log_state()
        report.recovered(SENDS)
        return True

    def look(self) -> None:
        """Ends this loop as soon as Kafka knows of a newer one, which waits until it has ended. Each send looks for itself, too."""
        if not self.in_charge or KAFKA in self.health or SENDS in self.health:
            return
        by = self._newest_in_kafka()
        if by is not None:
            self.superseded(by)

    def newest(self) -> int:
        """The generation that is in charge, when a send was refused because it isn't this one any more."""
        # where neither Kafka nor the tables tell any more, it is the next one at least
        return self._newest_in_kafka() or self.stored.ledgers.superseded_by() or self.generation + 1

    def log_state(self) -> None:
        """Logs whether this loop is in charge."""
        if self.in_charge:
            event(log, logging.INFO, "takeover_completed", generation=self.generation, instance=self.settings.instance)
        else:
            event(
                log, logging.WARNING, "takeover_delayed",
                generation=self.generation, instance=self.settings.instance,
                reason="the tables are taken over, Kafka is not yet: nothing is sent until it is",
            )  # fmt: skip

    def _newest_in_kafka(self) -> int | None:
        """The generation that has taken over from this one in Kafka; None: none has, or Kafka doesn't answer."""
        try:
            refuse_superseded(replace(self.publisher.settings, metadata_timeout_ms=_GLANCE_MS))
        except SupersededError as error:
            return error.by
        except SessionLostError as error:
            event(log, logging.DEBUG, "newest_generation_not_read", reason=error)
        return None

    def _knows(self, generation: int) -> bool:
        """Whether a generation that is in Kafka is one of these tables: of a loop that has started, or takes the next number just now."""
        newest = self.stored.ledgers.newest_generation()
        knows = generation <= newest + 1
        if not knows:
            event(
                log, logging.ERROR, "unknown_generation_found",
                generation=generation, instance=self.settings.instance, newest_in_tables=newest,
                reason="another installation has the same name, or the state of an earlier one is gone",
                hint="set `instance` (REDRIVE_INSTANCE) to a name of its own",
            )  # fmt: skip
        return knows


def _cannot_send(error: ClusterError | SessionLostError) -> Reason:
    if isinstance(error, SessionLostError):
        name = error.trouble.error.name
        return Reason(f"nothing can be sent yet: {error} ({name})", name)
    return Reason(f"nothing can be sent yet: {error}", error.name)
