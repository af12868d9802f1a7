"""`redrive verify` over the tables and topics of a real loop, and what it finds when a topic holds something else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestration.clock import wall_clock
from orchestration.kafka.cluster import Cluster, ClusterError
from orchestration.operators import verification
from orchestration.operators.promises import Promise
from orchestration.tables.retention import removed_before
from tests.loop.harness import Record, Redrive


def verified(redrive: Redrive, since: datetime, *, broken: int = 0) -> dict[str, dict[str, str]]:
    """What breaks the promises since a moment, by promise."""
    proved = verification.verify(redrive.loop.settings, since)
    assert proved.broken == broken, proved
    return {finding.promise.name: dict(finding.named) for finding in proved.findings if finding.broken}


def write_again(redrive: Redrive, record: Record, **changes: Any) -> int:
    """Writes a copy of a record to its topic; returns its offset."""
    _, offset = redrive.write(record.topic, record.key, changes.get("value", record.value), record.headers, record.partition)
    return offset


def test_what_a_loop_does_keeps_all_promises_and_a_topic_that_does_not_is_told(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.settle()
    since = wall_clock()
    redrive.domain("proved")
    redrive.fails("proved.orders", b"retried", b"v", [("trace", b"\xff"), ("trace", None)])
    redrive.fails("proved.orders", None, None)
    redrive.fails("proved.orders", b"dead", b"", error="KeyError")
    redrive.retries("proved", 2)
    redrive.dead("proved", 1)
    redrive.settle()
    proved = verification.verify(redrive.loop.settings, since)
    assert (proved.broken, proved.results >= 3, proved.records >= 3, proved.topics >= 2, proved.gone) == (0, True, True, True, ())

    # a copy of a record, and one that was changed on its way
    retry, other = sorted(redrive.read("proved.orders-billing-retry"), key=lambda record: record.key or b"", reverse=True)
    (dead,) = redrive.read("proved.orders.dlq")
    copy = write_again(redrive, retry)
    changed = write_again(redrive, dead, value=b"changed")
    names = {record: record.header("redrive-delivery") for record in (retry, other, dead)}
    found = verified(redrive, since, broken=3)
    assert found.keys() == {"sent_once", "same_bytes"}
    assert found["sent_once"].keys() == {names[retry], names[dead]}
    assert found["sent_once"][str(names[retry])] == f"2 records: {retry.topic}/0/{retry.offset}, {retry.topic}/0/{copy}"
    assert found["same_bytes"] == {names[dead]: f"key or value differ at {dead.topic}/0/{changed}"}

    # maintenance removes, while it is judged, all that is judged
    later = redrive.loop.clock.now() + timedelta(minutes=1)
    moments = iter([removed_before(redrive.loop.spark, redrive.loop.schema)])
    recorded = Promise("recorded", "", "select delivery_id as subject, topic as detail from publish_results where batch >= {first}")
    with monkeypatch.context() as judged:
        judged.setattr(verification, "PROMISES", (recorded,))
        judged.setattr(verification, "removed_before", lambda *_: next(moments, later))
        verified(redrive, since)

    # Kafka gives no answer: nothing is proved, and nothing is broken
    def silent(*_: object) -> None:
        raise ClusterError("no broker answers")

    monkeypatch.setattr(Cluster, "describe", silent)
    with pytest.raises(verification.VerificationError, match="no broker answers") as refused:
        verification.verify(redrive.loop.settings, since)
    assert refused.value.exit_code == 2
