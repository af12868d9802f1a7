"""The transactional producer of one task: opened when the first row needs it, closed with the task.

A task makes its own and keeps none for the next: init_transactions fences whoever holds the id, so a producer kept in a
worker process would be fenced as soon as the slot moves to another worker. A fresh one costs 0.07 s.
"""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.clients import Background, make_producer
from publisher.errors import SessionLostError
from publisher.settings import PublisherSettings
from publisher.trouble import kafka_error, trouble_of

# How often a wait looks whether it has become pointless, in seconds.
_GLANCE: Final = 0.5


class Session:
    """Context of one task's transactions: at most one producer at a time, all under the slot's transactional.id."""

    def __init__(self, settings: PublisherSettings, slot: int) -> None:
        self._settings = settings
        self._slot = slot
        self._producer: Producer | None = None
        self._batch_size = 0
        self._background = Background()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def producer(self, batch_size: int, topic: str) -> Producer:
        """An initialised producer whose batches are at most so many bytes; the one before is closed if it differs.

        `topic` is one that is about to be sent to. Raises SessionLostError when Kafka doesn't let it start.
        """
        if self._producer is None or self._batch_size != batch_size:
            self._close()
            self._producer = make_producer(self._settings, self._slot, batch_size, self._background)
            self._batch_size = batch_size
            self._connect(self._producer, topic)
            self._initialise(self._producer)
            # Here, between the init that fences older tasks and the first send, is where a task must find out whether
            # its generation is still in charge: earlier, and a newer one could start unseen; later, and it has sent.
        return self._producer

    def abort(self) -> None:
        """Ends the open transaction so that nothing of it is delivered.

        The next transaction gets a new producer: librdkafka counts on after a refused batch, and brokers then refuse
        the next one for its skipped sequence numbers (seen with librdkafka 2.16 and Kafka 4.1).

        Raises SessionLostError when Kafka doesn't confirm.
        """
        assert self._producer is not None, "there is no transaction to abort"
        deadline = time.monotonic() + self._settings.phase_ms / 1000
        while True:
            try:
                self._producer.abort_transaction(max(deadline - time.monotonic(), _GLANCE))
            except KafkaException as exception:
                error = kafka_error(exception)
                if not error.retriable() or time.monotonic() >= deadline:
                    raise self.lost(error) from None
            else:
                self._close()
                return

    def lost(self, error: KafkaError) -> SessionLostError:
        """The exception that says that no further transaction is possible, for the best reason that is known."""
        return SessionLostError(trouble_of(self._background.explain(error), self._settings))

    @staticmethod
    def _connect(producer: Producer, topic: str) -> None:
        """Waits for a connection to a broker, in vain if need be: whoever initialises then hears the reason.

        An init that begins while the bootstrap connection is being exchanged for one to a known broker sleeps for half
        a second, which happens every third time. The second answer comes from a known broker.
        """
        with contextlib.suppress(KafkaException):
            for _ in range(2):
                producer.list_topics(topic, timeout=_GLANCE)

    def _initialise(self, producer: Producer) -> None:
        deadline = time.monotonic() + self._settings.phase_ms / 1000
        while True:
            try:
                producer.init_transactions(_GLANCE)
            except KafkaException as exception:
                error = kafka_error(exception)
                hopeless = self._background.hopeless is not None or not error.retriable()
                if hopeless or time.monotonic() >= deadline:
                    raise self.lost(error) from None
            else:
                return

    def _close(self) -> None:
        if self._producer is None:
            return
        # Closing flushes first, and rows of a transaction that can no longer end must not hold it up.
        with contextlib.suppress(KafkaException):
            self._producer.purge()
        self._producer.close()
        self._producer = None
