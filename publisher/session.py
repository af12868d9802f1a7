"""The producer of one task: opened when the first row needs it, which costs 0.07 s, closed with the task.

A worker of Spark's keeps none for the next task: init_transactions fences whoever holds the id, and the slot may move to another worker.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.clients import Background, batch_size_of, fatal_as_kafka_exception, kafka_error, make_producer
from publisher.errors import FencedError, SessionLostError, SupersededError
from publisher.settings import PublisherSettings

# In seconds: the timeout of one try of a call; the wait for answers that are on their way when a producer ends.
_GLANCE: Final = 0.5
_LAST_ANSWERS: Final = 1.0
_LONGEST_IDLE: Final = 3600.0  # in seconds; Kafka forgets a producer after transactional.id.expiration.ms (7 days) without a send
# The errors of a producer when a newer one with its transactional.id has begun.
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Session:
    """Context of one task's loads: one producer at a time. check: `generation.refuse_superseded`. stays_open: until an error or `close`."""

    def __init__(
        self, settings: PublisherSettings, slot: int | str, check: Callable[[PublisherSettings], None], *, stays_open: bool = False
    ) -> None:
        self._stays_open = stays_open
        self._settings = settings
        self._slot = slot
        self._check = check
        self._producer: Producer | None = None
        self._batch_size = 0
        self._used = 0.0
        self.background = Background()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # after an error the producer may have a transaction of unknown outcome, and would begin no other
        if error is not None or not self._stays_open:
            self.close()

    def producer(self, batch_size: int, topic: str) -> Producer:
        """A producer that may send, with batches of at most `batch_size` bytes. topic: one to connect with. Raises SessionLostError."""
        idle, self._used = time.monotonic() - self._used, time.monotonic()
        producer = self._producer if self._batch_size == batch_size and idle < _LONGEST_IDLE else None
        # A newer loop fences a transactional producer that was made before. Without transactions it can't: then each load has to check.
        if producer is not None and self._settings.transactions:
            return producer
        try:
            if producer is None:
                producer = self._open(batch_size, topic)
            # After the init that fences older tasks, before the first send: earlier, a newer loop could start unseen; later is too late.
            self._check(self._settings)
        except SessionLostError:
            self.close()
            raise
        return producer

    def fence(self) -> Producer:
        """A new producer that has fenced all before it. Whether its own loop is in charge is not checked."""
        return self._open(batch_size_of(self._settings), next(iter(self._settings.fence_topics), None))

    def abort(self) -> bool:
        """Ends the open transaction; returns whether Kafka confirmed that nothing of it is delivered. Raises SessionLostError.

        If no commit was tried, nothing is delivered in either case: the next init aborts what is still open.
        """
        assert self._producer is not None, "there is no transaction to abort"
        error = self.repeated(self._producer.abort_transaction)
        # A new producer follows: after a refused batch librdkafka (2.16) skips sequence numbers, and brokers would refuse the next batch.
        self.close()
        if error is not None and (error.retriable() or error.code() in _FENCED):
            raise self.lost(error)
        return error is None

    def lost(self, error: KafkaError) -> SessionLostError:
        """The exception for an error after which no further transaction is possible. After a fence the reason is a newer loop, if any."""
        if error.code() not in _FENCED:
            return SessionLostError(self._settings.trouble_of(self.background.explain(error)))
        try:
            self._check(self._settings)
        except SessionLostError as lost:
            if isinstance(lost, SupersededError):
                return lost
        return FencedError(self._settings.trouble_of(error))

    def _open(self, batch_size: int, topic: str | None) -> Producer:
        self.close()
        self.background = Background()  # an error of a producer before would be taken for the reason of each wait
        transactional_id = self._settings.transactional_id(self._slot) if self._settings.transactions else None
        self._producer = make_producer(self._settings, transactional_id, batch_size, self.background)
        self._batch_size = batch_size
        error = self._connect(self._producer, topic) if topic is not None else None
        if self._settings.transactions:
            # Also after a failed connection: the error of this call has the reason.
            error = self.repeated(self._producer.init_transactions)
        if error is not None:
            raise self.lost(error)
        return self._producer

    def _connect(self, producer: Producer, topic: str) -> KafkaError | None:
        """Waits for the second answer, which comes from a known broker; returns the error why there is none.

        An init, or what an idempotent producer does in its place, sleeps for half a second when it begins while the bootstrap connection is
        being exchanged for one to a known broker, which happens every third time.
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
                if self._settings.transactions or self.background.hopeless is not None or time.monotonic() >= deadline:
                    return error
            producer.poll(0)  # calls `background`

    def repeated(self, call: Callable[[float], None]) -> KafkaError | None:
        """Calls with a short timeout until it returns, fails for good, or a third of the transaction timeout is up."""
        assert self._producer is not None, "there is no producer"
        deadline = time.monotonic() + self._settings.phase_ms / 1000
        while True:
            try:
                with fatal_as_kafka_exception():
                    call(_GLANCE)
                return None
            except KafkaException as exception:
                error = kafka_error(exception)
            with suppress(KafkaException):
                self._producer.poll(0)  # calls `background`
            if not error.retriable() or self.background.hopeless is not None or time.monotonic() >= deadline:
                return error

    def close(self) -> None:
        """Ends the producer; what it has not committed is not delivered. The session may go on with another."""
        # Not by its close(), which waits without end for a broker that is gone (confluent-kafka 2.16). Without references it ends at once.
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with suppress(KafkaException):
            producer.purge(in_flight=False)
        # A refusal that is answered while librdkafka's threads end frees a text twice, and aborts the process (2.16, rd_kafka_txns_term).
        deadline = time.monotonic() + _LAST_ANSWERS
        while len(producer) > 0 and (left := deadline - time.monotonic()) > 0:
            with suppress(KafkaException), fatal_as_kafka_exception():  # raised once for a fatal error, then the flush goes on
                producer.flush(left)
        # Unread reports would leak their callbacks.
        with suppress(KafkaException):
            producer.purge()
            producer.poll(0)
