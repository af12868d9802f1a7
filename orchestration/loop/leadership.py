"""The generation in Kafka: only the loop that holds the newest one sends. docs/decisions/0040 describes the order of a takeover."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from orchestration.kafka.cluster import Cluster, ClusterError
from orchestration.logs import event
from orchestration.loop.health import KAFKA, SENDS, Health, Reason
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.sending import BulkLane
from orchestration.loop.steps import StepReport
from orchestration.loop.stored import Stored
from orchestration.rules.topic_patterns import is_source
from orchestration.settings import Settings
from publisher import (
    PublisherSettings,
    SessionLostError,
    SupersededError,
    error_kinds_from_rows,
    refuse_superseded,
    renew_charge,
    take_charge,
)

log = logging.getLogger(__name__)

# Kafka's topic of committed offsets.
OFFSETS = "__consumer_offsets"

# The slots beside those of the bulk lane, by their place after these.
TIMED_LANE, DIRECT_SENDS, _BESIDE = 0, 1, 2

# The timeout of the check for a newer generation at the beginning of a tick, in milliseconds. It may be short, as each send checks again.
_GLANCE_MS = 1_000

# How often the generation is written into Kafka again, in seconds: a day; and how soon after an attempt that failed: there are days left.
_RENEWED_EVERY = 86_400.0
_RENEWED_AGAIN = 60.0


@dataclass
class Leadership:
    """The generation of this loop in Kafka, and the bulk lane, which sends with it.

    stored: what the tables hold, and the generation that this loop takes; replaced when a start has to read the tables again. superseded:
    called with the generation that is in charge instead of this one; ends this loop.
    """

    settings: Settings
    cluster: Cluster
    rules: RulesInForce
    health: Health
    superseded: Callable[[int], None]
    in_charge: bool = False
    stored: Stored = field(init=False)
    bulk_lane: BulkLane = field(init=False)
    _fence_topics: tuple[str, ...] = ()
    _fences: int = 0
    """How often this loop has taken its generation in Kafka again."""
    _renews_at: float = 0.0

    @property
    def generation(self) -> int:
        """The generation of this loop."""
        return self.stored.ledgers.generation

    def renew_bulk_lane(self) -> None:
        """Makes a new bulk lane with the current generation, fence topics and error kinds."""
        self.bulk_lane = BulkLane(
            spark=self.stored.spark,
            schema=self.stored.schema,
            ledgers=self.stored.ledgers,
            settings=PublisherSettings(
                kafka=dict(self.settings.kafka_properties),
                error_kinds=error_kinds_from_rows(row.values for row in self.rules.seeds.rows["publish_error_kinds"]),
                transactional_prefix=self.settings.transactional_prefix,
                instance=self.settings.instance,
                generation=self.generation,
                fence=self._fences,
                fence_topics=self._fence_topics,
                transactions=self.settings.transactions,
            ),
            slots=self.settings.slots,
            max_rows=self.settings.publish_max_rows,
            max_bytes=self.settings.publish_max_bytes,
        )

    def fence(self) -> None:
        """Takes the generation in Kafka, which fences the sends of older loops. Raises ClusterError, SessionLostError.

        The generation is stored with committed offsets of the topics that this loop reads, as it is certainly allowed to. There may be
        none, or others than the older loop read: where it is allowed, also with those of Kafka's own topic of offsets.
        """
        own = [name for name in self.cluster.topic_names() if is_source(self.rules.seeds, name) or name == self.settings.commands_topic]
        denied = self.cluster.not_readable([OFFSETS])
        if not own and not denied:
            # a new cluster makes that topic when somebody asks for committed offsets
            self.cluster.committed(self.settings.group, [(OFFSETS, 0)])
        self._fence_topics = (*own, *({OFFSETS} - denied))
        self.renew_bulk_lane()
        take_charge(self.bulk_lane.settings, self._fence_topics, max(self.stored.most_slots(), slots_of(self.settings)))
        self.in_charge = True
        self._renews_at = time.monotonic() + _RENEWED_EVERY

    def fence_own(self) -> None:
        """Fences this loop's own sends: each transaction is committed or aborted then, and tasks that were given up send nothing more.

        Nothing may be sent meanwhile. Raises ClusterError, SessionLostError; SupersededError if a newer loop is in charge.
        """
        self._fences += 1
        self.fence()

    def take_first(self) -> None:
        """Takes the generation in Kafka at a start. If Kafka doesn't answer, `take` tries again before the first send."""
        try:
            self.fence()
        except SupersededError as error:
            if not self._knows(error.by):
                self.superseded(error.by)
            # else the other loop is starting at the same time: the one that appends to the tables first is in charge, and the other tries
            # again
        except (ClusterError, SessionLostError) as error:
            self.health.failed(SENDS, _cannot_send(error))

    def take(self, report: StepReport) -> bool:
        """Takes the generation in Kafka before the first send, if the start could not. Returns whether this loop is in charge."""
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
        """Ends this loop if Kafka has a newer generation: the newer loop waits until this one has ended. Each send checks this, too."""
        if not self.in_charge or KAFKA in self.health or SENDS in self.health:
            return
        by = self._newest_in_kafka()
        if by is None and time.monotonic() >= self._renews_at:
            by = self._renewed()
        if by is not None:
            self.superseded(by)

    def newest(self) -> int:
        """The generation that is in charge, after a send was refused because this one no longer is."""
        # if neither Kafka nor the tables have it, it is at least the next one
        return self._newest_in_kafka() or self.stored.ledgers.superseded_by() or self.generation + 1

    def log_state(self) -> None:
        """Logs whether this loop is in charge."""
        if self.in_charge:
            event(log, logging.INFO, "takeover_completed", generation=self.generation, instance=self.settings.instance)
        else:
            event(
                log, logging.WARNING, "takeover_delayed",
                generation=self.generation, instance=self.settings.instance,
                reason="this loop has taken over the tables, but not yet Kafka: it sends nothing until it has",
            )  # fmt: skip

    def _newest_in_kafka(self) -> int | None:
        """The generation in Kafka that has superseded this one; None if there is none, or if Kafka doesn't answer."""
        try:
            refuse_superseded(replace(self.bulk_lane.settings, metadata_timeout_ms=_GLANCE_MS))
        except SupersededError as error:
            return error.by
        except SessionLostError as error:
            event(log, logging.DEBUG, "newest_generation_not_read", reason=error)
        return None

    def _renewed(self) -> int | None:
        """Writes the generation into Kafka again, which forgets it after some days. Returns the one that has superseded it, if any."""
        settings = self.bulk_lane.settings
        self._renews_at = time.monotonic() + _RENEWED_AGAIN
        try:
            # one that was deleted since would leave a transaction open that holds up every send
            topics = self.cluster.describe(settings.fence_topics)
            renew_charge(replace(settings, fence_topics=tuple(topic for topic in settings.fence_topics if topic in topics)))
            self._renews_at = time.monotonic() + _RENEWED_EVERY
        except SupersededError as error:
            return error.by
        except (ClusterError, SessionLostError) as error:
            event(log, logging.DEBUG, "generation_not_renewed", reason=error)
        return None

    def _knows(self, generation: int) -> bool:
        """Whether a generation in Kafka belongs to these tables: to a loop that has started, or one that is taking the next number."""
        newest = self.stored.ledgers.newest_generation()
        knows = generation <= newest + 1
        if not knows:
            event(
                log, logging.ERROR, "unknown_generation_found",
                generation=generation, instance=self.settings.instance, newest_in_tables=newest,
                reason="another installation has the same name, or the tables of this one are lost",
                hint="set `instance` (REDRIVE_INSTANCE) to a name that no other installation has",
            )  # fmt: skip
        return knows


def slots_of(settings: Settings) -> int:
    """How many slots a loop has, each with its transactional id: those of the bulk lane, of the timed lane, and of direct sends."""
    return settings.slots + _BESIDE


def _cannot_send(error: ClusterError | SessionLostError) -> Reason:
    if isinstance(error, SessionLostError):
        name = error.trouble.error.name
        return Reason(f"nothing can be sent yet: {error} ({name})", name)
    return Reason(f"nothing can be sent yet: {error}", error.name)
