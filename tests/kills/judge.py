"""Judges what lies in the topics after kills: nothing is lost, early, altered or there twice, and each life takes all its attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.kills.service import FATAL, OWN, value_of
from tests.loop.harness import Record
from tests.loop.processes import MAX_ATTEMPTS


def breaches(keys: Iterable[bytes], retries: list[Record], dead: list[Record], redriven: int) -> list[str]:
    """What is wrong in the end, when all messages are dead. redriven: how many dead letters were redriven, by the tables."""
    found = [*_in_each(retries), *_in_each(dead)]
    sent = Counter(record.header("redrive-delivery") for record in (*retries, *dead))
    found += [f"twice: {delivery} came {times} times" for delivery, times in sent.items() if times > 1]
    tries, deaths = (Counter(record.key for record in records) for records in (retries, dead))
    keys = set(keys)
    found += [f"wrong: {key!r} is not of here" for key in (tries.keys() | deaths.keys()) - keys]
    for key in keys:
        if not deaths[key]:
            found.append(f"lost: {key!r} has no dead letter, and {tries[key]} retries")
            continue
        # a redriven message fails with an error that is retried
        wanted = (0 if key.startswith(FATAL) else MAX_ATTEMPTS - 1) + MAX_ATTEMPTS * (deaths[key] - 1)
        if tries[key] != wanted:
            found.append(f"wrong: {key!r} died {deaths[key]} times and was tried again {tries[key]} times, not {wanted}")
    if sum(deaths.values()) != len(keys) + redriven:
        found.append(f"wrong: {len(keys)} messages, of which {redriven} were redriven, and {sum(deaths.values())} dead letters")
    return found


def _in_each(records: list[Record]) -> Iterable[str]:
    for record in records:
        due = record.header("redrive-due")
        where = f"{record.topic}/{record.partition}/{record.offset}"
        if due is None or record.timestamp < int(due):
            yield f"early: {where} was due at {due}, and sent at {record.timestamp}"
        if record.value != value_of(record.key or b"") or record.own_headers[: len(OWN)] != OWN:
            yield f"altered: {where}, {record.key!r}"
