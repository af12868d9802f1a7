"""The producer of one task: opened when the first row needs it, which costs 0.07 s, closed with the task.

A Spark worker does not keep it for the next task: init_transactions fences whoever holds the id, and the slot may move to another worker.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.clients import Background, batch_size_of, fatal_as_kafka_exception, kafka_error, make_producer
from publisher.errors import FencedError, SessionLostError, SupersededError
from publisher.originals import Originals
from publisher.settings import PublisherSettings

# In seconds: the timeout of one try of a call; the wait for answers that are on their way when a producer ends.
_GLANCE: Final = 0.5
_LAST_ANSWERS: Final = 1.0
_LONGEST_IDLE: Final = 3600.0  # in seconds; less than transactional.id.expiration.ms (7 days), when Kafka forgets an idle producer
# The errors of a producer when a newer one with its transactional.id has begun.
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Session:
    """The context of one task: one producer at a time. check: `generation.refuse_superseded`. stays_open: until an error or `close`."""

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
        self.originals = Originals(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # after an error the producer may have a transaction of unknown outcome, and then it can begin no other
        if error is not None or not self._stays_open:
            self.end()

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
            # Before the first send, but after the init: otherwise a newer loop could start unseen between check and init, and be fenced.
            self._check(self._settings)
        except SessionLostError:
            self.close()
            raise
        return producer

    def fence(self) -> Producer:
        """A new producer, which has fenced all earlier ones of its slot. Whether this loop is in charge is not checked."""
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
        """The exception for an error after which no transaction is possible; for a fence, SupersededError if a newer loop is in charge."""
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
        self.background = Background()  # else a timeout would be explained by an error of the previous producer
        transactional_id = self._settings.transactional_id(self._slot) if self._settings.transactions else None
        self._producer = make_producer(self._settings, transactional_id, batch_size, self.background)
        self._batch_size = batch_size
        error = self._connect(self._producer, topic) if topic is not None else None
        if self._settings.transactions:
            # Also if the connection failed: the error of this call has the reason.
            error = self.repeated(self._producer.init_transactions)
        if error is not None:
            raise self.lost(error)
        return self._producer

    def _connect(self, producer: Producer, topic: str) -> KafkaError | None:
        """Asks for metadata until the second answer, which comes from a known broker; returns the error if there is none.

        Without this, every third init (of an idempotent producer: its request for a producer id) sleeps for half a second, as it begins
        while the client replaces the bootstrap connection by one to a known broker.
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
        """Repeats `call` with a short timeout until it returns, fails for good, or a third of the transaction timeout is over."""
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

    def end(self) -> None:
        """Ends all clients of the session, which may go on with others."""
        self.originals.close()
        self.close()

    def close(self) -> None:
        """Ends the producer; rows of an open transaction are not delivered. The session may go on with another producer."""
        # Not by its close(), which waits without end for a broker that is gone (confluent-kafka 2.16). Without references it ends at once.
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with suppress(KafkaException):
            producer.purge(in_flight=False)
        # If a refusal arrives while librdkafka's threads end, it frees a text twice and aborts the process (2.16, rd_kafka_txns_term).
        deadline = time.monotonic() + _LAST_ANSWERS
        while len(producer) > 0 and (left := deadline - time.monotonic()) > 0:
            with suppress(KafkaException), fatal_as_kafka_exception():  # raised once for a fatal error, then the flush goes on
                producer.flush(left)
        # Unread reports would leak their callbacks.
        with suppress(KafkaException):
            producer.purge()
            producer.poll(0)
