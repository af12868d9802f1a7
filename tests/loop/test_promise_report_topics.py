"""Report topics that are crowded, made again, grown or cut, and wrong clocks in reports: what is there is read, and gaps are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from orchestration.kafka.cluster import Cluster, Topic
from tests.log_events import logged
from tests.loop.harness import Redrive


@pytest.mark.slow
def test_one_noisy_source_does_not_starve_another(redrive: Redrive) -> None:
    redrive.domain("noisy")
    redrive.domain("quiet")
    first = redrive.fails("noisy.orders", b"0", b"v")
    said = [(name, value) for name, value in redrive.read("noisy.reports")[0].headers if name != "redrive-original-offset"]
    for offset in range(first.offset + 1, first.offset + 7_000):
        redrive._producer.produce("noisy.reports", b"v", str(offset), headers=[*said, ("redrive-original-offset", str(offset))])
    redrive._producer.flush(60)
    redrive.fails("quiet.orders", b"k", b"v")
    taken = []
    while not redrive.sql("select 1 from decisions where original_topic = 'quiet.orders'"):
        taken.append(redrive.loop.tick().counts.get("events", 0))
    # in bounded steps, and the quiet one in the first of them, whichever was noticed first
    assert max(taken) <= redrive.loop.settings.intake_max_rows
    assert sum(taken) <= redrive.loop.settings.intake_max_rows
    redrive.until(
        lambda: redrive.sql("select count(*) as n from decisions where original_topic = 'noisy.orders'")[0]["n"] == 7_000, "all are decided"
    )


@pytest.mark.slow
def test_a_topic_that_was_created_again_is_read_from_its_beginning(redrive: Redrive) -> None:
    redrive.domain("renewed")
    admin = AdminClient({**redrive.kafka})
    redrive.fails("renewed.orders", b"before", b"v")
    assert [row["report_offset"] for row in redrive.decided("renewed", 1)] == [0]
    for deleted in admin.delete_topics(["renewed.reports"]).values():
        deleted.result()
    redrive.loop.tick()
    redrive.topics("renewed.reports")
    redrive.fails("renewed.orders", b"after", b"v")
    assert [row["report_offset"] for row in redrive.decided("renewed", 2)] == [0, 0]
    redrive.retries("renewed", 2)


@pytest.mark.slow
def test_partitions_that_are_added_are_read_from_their_beginning(redrive: Redrive) -> None:
    redrive.domain("wider")
    redrive.fails("wider.orders", b"before", b"v")
    redrive.decided("wider", 1)
    admin = AdminClient({**redrive.kafka})
    for grown in admin.create_partitions([NewPartitions("wider.reports", 2)]).values():
        grown.result()
    # the producer must have heard of it
    redrive._producer.list_topics("wider.reports", timeout=10)
    (first,) = redrive.read("wider.orders")
    redrive.write(
        "wider.reports",
        b"after",
        b"v",
        [
            ("redrive-error-class", b"TimeoutError"),
            ("redrive-original-topic", b"wider.orders"),
            ("redrive-original-partition", b"0"),
            ("redrive-original-offset", str(first.offset + 7).encode()),
            ("redrive-consumer-group", b"billing"),
        ],
        partition=1,
    )
    assert {(row["report_partition"], row["report_offset"]) for row in redrive.decided("wider", 2)} == {(0, 0), (1, 0)}


@pytest.mark.long
def test_what_retention_removed_unread_is_a_gap_that_can_be_seen(redrive: Redrive, caplog: pytest.LogCaptureFixture) -> None:
    redrive.domain("short")
    redrive.fails("short.orders", b"read", b"v")
    redrive.decided("short", 1)
    for number in range(4):
        redrive.fails("short.orders", f"late-{number}".encode(), b"v")
    admin = AdminClient({**redrive.kafka})
    for removed in admin.delete_records([TopicPartition("short.reports", 0, 4)]).values():
        removed.result()
    decisions = redrive.decided("short", 3)
    assert sorted((row["decision"], row["report_offset"]) for row in decisions if row["decision"] != "note") == [("retry", 0), ("retry", 4)]
    (gap,) = redrive.sql("select * from gaps where topic = 'short.reports'")
    assert (gap["partition"], gap["first_offset"], gap["last_offset"], gap["rows_missing"]) == (0, 1, 3, 3)
    (said,) = logged(caplog, "unread_records_removed")
    assert (said["topic"], said["partition"], said["first_offset"], said["last_offset"]) == ("short.reports", 0, 1, 3)


@pytest.mark.slow
def test_a_partition_that_was_cut_short_is_a_gap_and_what_is_written_there_anew_is_read(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    redrive.domain("cut")
    for number in range(3):
        redrive.fails("cut.orders", b"lost-%d" % number, b"v")
    assert [row["report_offset"] for row in redrive.decided("cut", 3)] == [0, 1, 2]
    # a topic that is created again under the same id: what an unclean election of a leader leaves
    describe = Cluster.describe
    known = redrive.loop.cluster.describe(["cut.reports"])["cut.reports"].id

    def still_the_same(self: Cluster, names: Iterable[str]) -> dict[str, Topic]:
        found = describe(self, names)
        return {name: replace(topic, id=known) if name == "cut.reports" else topic for name, topic in found.items()}

    monkeypatch.setattr(Cluster, "describe", still_the_same)
    admin = AdminClient({**redrive.kafka})
    for deleted in admin.delete_topics(["cut.reports"]).values():
        deleted.result()
    redrive.loop.tick()
    redrive.topics("cut.reports")
    redrive.write("cut.reports", b"k", b"before anybody could notice")
    redrive.until(lambda: redrive.sql("select 1 from gaps where topic = 'cut.reports'"), "the gap is noticed")
    (said,) = logged(caplog, "partition_truncated")
    assert (said["topic"], said["partition"]) == ("cut.reports", 0)
    assert (said["end_offset"], said["read_up_to"], said["continues_at"]) == (1, 3, 1)
    redrive.fails("cut.orders", b"anew-1", b"v")
    redrive.decided("cut", 5)
    redrive.restart()
    redrive.fails("cut.orders", b"anew-2", b"v")
    redrive.fails("cut.orders", b"anew-3", b"v")
    decisions = [row for row in redrive.decided("cut", 7) if row["decision"] != "note"]
    assert [row["report_offset"] for row in decisions] == [0, 1, 1, 2, 2, 3]
    assert len({row["input_id"] for row in decisions}) == 6
    keys = {retry.key for retry in redrive.retries("cut", 6)}
    assert keys == {b"lost-0", b"lost-1", b"lost-2", b"anew-1", b"anew-2", b"anew-3"}
    (gap,) = redrive.sql("select * from gaps where topic = 'cut.reports'")
    assert (gap["partition"], gap["first_offset"], gap["last_offset"], gap["rows_missing"]) == (0, 1, 2, 2)
    # two inputs never have one name
    assert redrive.sql("select 1 from events group by topic_id, partition, offset, index having count(*) > 1") == []


def test_a_clock_that_is_wrong_at_the_consumer_burns_no_attempt(redrive: Redrive) -> None:
    redrive.domain("clocks")
    for name, minutes in (("ahead", 5), ("behind", -5), ("far", -60 * 24 * 400)):
        at = redrive.loop.clock.now() + timedelta(minutes=minutes)
        redrive.fails("clocks.orders", name.encode(), b"v", failed_at=max(0, round(at.timestamp() * 1000)))
    redrive.fails("clocks.orders", b"none", b"v", failed_at=-1)
    retries = redrive.retries("clocks", 4)
    assert {retry.header("redrive-attempt") for retry in retries} == {"2"}
    for retry in retries:
        due = retry.header("redrive-due")
        assert due is not None
        assert retry.timestamp >= int(due)
    # nor is it postponed: each was due a second after it was taken in, at the latest
    late = redrive.sql(
        "select count(*) as n from decisions where original_topic = 'clocks.orders' and due_at > recorded_at + interval 1 second"
    )
    assert late[0]["n"] == 0
