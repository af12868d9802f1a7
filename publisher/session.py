"""The producer of one task: opened when the first row needs it, closed with the task.

A task makes its own and keeps none for the next: init_transactions fences whoever holds the id, so a producer kept in a
worker process would be fenced as soon as the slot moves to another worker. A fresh one costs 0.07 s.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.clients import Background, batch_size_of, make_producer
from publisher.errors import FencedError, SessionLostError, SupersededError
from publisher.fence import refuse_superseded
from publisher.settings import PublisherSettings
from publisher.trouble import kafka_error, trouble_of, untangled

# How often a wait looks whether it has become pointless, in seconds.
_GLANCE: Final = 0.5

# How long requests that are on their way may be answered before a producer ends, in seconds.
_LAST_ANSWERS: Final = 1.0

# What a producer is told when a newer one with its transactional.id has begun.
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class Session:
    """Context of one task's loads: at most one producer at a time, all under the slot's transactional.id, if they have one."""

    def __init__(self, settings: PublisherSettings, slot: int | str) -> None:
        self._settings = settings
        self._slot = slot
        self._producer: Producer | None = None
        self._batch_size = 0
        self._background = Background()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def producer(self, batch_size: int, topic: str) -> Producer:
        """A producer that may send, with batches of at most so many bytes; the one before is closed if it differs.

        `topic` is one that is about to be sent to. Raises SessionLostError when Kafka doesn't let it start,
        SupersededError when it must not.
        """
        producer = self._producer
        known = producer is not None and self._batch_size == batch_size
        # A newer loop fences what began before it by a transaction, or not at all: then each load has to look.
        if producer is not None and known and self._settings.transactions:
            return producer
        try:
            if producer is None or not known:
                producer = self._open(batch_size, topic)
            # Here, between the init that fences older tasks and the first send: earlier, and a newer loop could start
            # unseen; later, and something would be sent.
            refuse_superseded(self._settings)
        except SessionLostError:
            self.close()
            raise
        return producer

    def fence(self) -> Producer:
        """A new producer, initialised: from now on none that began before can do anything under this transactional.id.

        Whether its own loop is in charge is not asked.
        """
        return self._open(batch_size_of(self._settings), next(iter(self._settings.fence_topics), None))

    @property
    def hopeless(self) -> KafkaError | None:
        """What no waiting will cure, a refused login for instance, if anything is."""
        return self._background.hopeless

    def abort(self) -> bool:
        """Ends the open transaction; says whether Kafka confirmed that nothing of it is delivered.

        Without a commit before it nothing is delivered either way: the next init ends what is still open.

        The next transaction gets a new producer: librdkafka counts on after a refused batch, and brokers would refuse
        the next one for its skipped sequence numbers (seen with librdkafka 2.16 and Kafka 4.1).

        Raises SessionLostError when Kafka doesn't answer, or when a newer producer holds the transactional.id.
        """
        assert self._producer is not None, "there is no transaction to abort"
        error = self.repeated(self._producer.abort_transaction)
        self.close()
        if error is not None and (error.retriable() or error.code() in _FENCED):
            raise self.lost(error)
        return error is None

    def lost(self, error: KafkaError) -> SessionLostError:
        """The exception that says that no further transaction is possible, for the best reason that is known.

        After a fence that is another loop, if there is one: a FencedError says that none is known.
        """
        if error.code() not in _FENCED:
            return SessionLostError(trouble_of(self._background.explain(error), self._settings))
        try:
            refuse_superseded(self._settings)
        except SupersededError as superseded:
            return superseded
        except SessionLostError:
            pass
        return FencedError(trouble_of(error, self._settings))

    def _open(self, batch_size: int, topic: str | None) -> Producer:
        self.close()
        transactional = self._settings.transactions
        transactional_id = self._settings.transactional_id(self._slot) if transactional else None
        self._producer = make_producer(self._settings, transactional_id, batch_size, self._background)
        self._batch_size = batch_size
        error = self._connect(self._producer, topic) if topic is not None else None
        if transactional:
            # In vain, too, if there is no connection: so it hears the reason.
            error = self.repeated(self._producer.init_transactions)
        if error is not None:
            raise self.lost(error)
        return self._producer

    def _connect(self, producer: Producer, topic: str) -> KafkaError | None:
        """Waits for a connection to a broker; the error why there is none.

        An init, or what an idempotent producer does in its place, sleeps for half a second when it begins while the
        bootstrap connection is being exchanged for one to a known broker, which happens every third time. The second
        answer comes from a known broker.
        """
        deadline = time.monotonic() + self._settings.metadata_timeout_ms / 1000
        answers = 0
        while True:
            try:
                producer.list_topics(topic, timeout=_GLANCE)
                answers += 1
                if answers == 2:
                    return None
            except KafkaException as exception:
                error = kafka_error(exception)
                if self._settings.transactions or self._background.hopeless is not None or time.monotonic() >= deadline:
                    return error
            producer.poll(0)  # hears what happened in the background

    def repeated(self, call: Callable[[float], None]) -> KafkaError | None:
        """Calls with a short timeout until it returns, fails for good, or a third of the transaction timeout is up."""
        assert self._producer is not None, "nobody to call"
        deadline = time.monotonic() + self._settings.phase_ms / 1000
        while True:
            try:
                with untangled():
                    call(_GLANCE)
                return None
            except KafkaException as exception:
                error = kafka_error(exception)
            with contextlib.suppress(KafkaException):
                self._producer.poll(0)  # hears what happened in the background
            if not error.retriable() or self._background.hopeless is not None or time.monotonic() >= deadline:
                return error

    def close(self) -> None:
        """Ends the producer; what it has not committed is not delivered. The session may go on with another."""
        # Not by its close(): that aborts an open transaction and waits without end for a broker that is gone (seen with
        # confluent-kafka 2.16). Without its last reference the producer ends at once.
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with contextlib.suppress(KafkaException):
            producer.purge(in_flight=False)
        # A refusal that is answered while librdkafka's threads end would free the text of the one before it a second
        # time, and the process would abort (seen with librdkafka 2.16, rd_kafka_txns_term).
        deadline = time.monotonic() + _LAST_ANSWERS
        while len(producer) > 0 and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(KafkaException), untangled():  # tells once of what is fatal, and goes on after it
                producer.flush(left)
        # Unread reports would leak their callbacks.
        with contextlib.suppress(KafkaException):
            producer.purge()
            producer.poll(0)
