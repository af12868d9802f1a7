"""The flow: rows of `ready` in, results out. What a task of Spark calls."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaError

from publisher.errors import SessionLostError
from publisher.ready import complete, loads
from publisher.session import Session
from publisher.settings import PublisherSettings
from publisher.task import Task
from publisher.trouble import trouble


def epoch_ms() -> int:
    """The wall clock, in whole milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def publish(
    batches: Iterable[pa.RecordBatch], settings: PublisherSettings, slot: int, clock: Callable[[], int] = epoch_ms
) -> Iterator[pa.RecordBatch]:
    """Sends every row of `batches` (schema `READY`) in order and yields what became of them (schema `RESULTS`).

    A row without a result was not sent and stays due; a result with the outcome `stopped` then says why. Rows of one
    destination partition arrive in their order. One slot must not be used by two calls at the same time: the later one
    fences the earlier.

    Nothing is raised once it is iterated, whatever goes wrong: `stopped` says that, too. A task that failed would take the
    results of the others with it, and what they had sent would be sent again. Settings that are wrong for every task are
    refused before: see `PublisherSettings` and `take_charge`.
    """
    return publish_at(map(complete, batches), settings, slot, clock)


def publish_at(
    batches: Iterable[pa.RecordBatch], settings: PublisherSettings, slot: int, clock: Callable[[], int]
) -> Iterator[pa.RecordBatch]:
    """`publish` for rows that are complete already (schema `RECORDS`)."""
    session = Session(settings, slot)
    task = Task(session, settings, slot, clock)
    try:
        with session:
            for load in loads(batches, settings.max_rows, settings.max_bytes):
                task.send(load)
                yield from task.take_results()
    except SessionLostError as lost:
        task.stop(None, lost.trouble)
    except Exception as error:
        # Raising would lose the results of what is committed, other tasks' too, and it would be sent again.
        task.stop(None, trouble(KafkaError._APPLICATION, f"{type(error).__name__}: {error} ({_place(error)})", settings))
    yield from task.take_results()


def _place(error: Exception) -> str:
    """Where in the code an error was raised: nobody sees its traceback."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
