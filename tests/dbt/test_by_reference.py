"""Reports that bring no payload: what is decided about them, and what the publisher gets."""

from __future__ import annotations

from pyspark.sql import Row

from orchestration.operators.selections import named
from orchestration.tables.rows import collected
from tests.dbt.harness import Home, Report, Result, decided, order, pairs, pointer, report

SOURCE = "apart"


def apart(topic: str, offset: object = 0, error: str = "TimeoutError") -> Report:
    """A report of a source with `payload` = `reference`, which brings neither key nor value."""
    return report(topic, offset, error=error, key=None, value=None).but(source=SOURCE)


def ready(home: Home, delivery: Row) -> Row:
    (row,) = collected(home.spark.sql(f"select * from {home.schema}.ready where delivery_id = '{delivery['delivery_id']}'"))
    return row


def payload(row: Row) -> tuple[object, object, object]:
    return row["by_reference"], row["key"], row["value"]


def test_a_report_by_reference_keeps_only_what_the_report_added(home: Home) -> None:
    # a payload that comes all the same is not kept either
    without, with_one = decided(home, apart("apart-a"), apart("apart-a", 1).but(key=b"key", value=b"value"))
    for row in (without, with_one):
        assert (row["decision"], row["content_hash"], pairs(row["headers"])) == ("retry", None, [("trace", b"\x00\xff")])
        assert payload(row) == payload(ready(home, row)) == (True, None, None)
    due = ready(home, without)
    assert (due["original_topic"], due["original_partition"], due["original_offset"], due["denied_headers"]) == ("apart-a", 0, 0, None)


def test_what_names_no_record_keeps_its_payload(home: Home) -> None:
    (row,) = decided(home, report("apart-orphan", None).but(source=SOURCE))
    assert (row["decision"], payload(row)) == ("orphan", (False, b"key", b"value"))


def test_a_report_that_brings_nothing_answers_the_retry_that_it_names(home: Home) -> None:
    (first,) = decided(home, apart("apart-again"))
    home.append_results(Result(first, offset=3))
    failed = apart("apart-again").with_headers(*pointer(first))
    (second,) = decided(home, failed)
    assert (second["decision"], second["attempt"], second["prior_delivery"]) == ("retry", 2, first["delivery_id"])
    assert payload(second) == (True, None, None)
    (third,) = decided(home, failed)
    assert (third["decision"], third["reason"]) == ("duplicate", "answered_already")


def test_the_same_record_is_one_message_with_its_payload_or_without(home: Home) -> None:
    rows = decided(home, apart("apart-twice"), report("apart-twice"), apart("apart-twice"))
    assert [row["decision"] for row in rows] == ["retry", "duplicate", "duplicate"]
    (later,) = decided(home, report("apart-twice"))
    assert (later["decision"], later["message_id"]) == ("duplicate", rows[0]["message_id"])
    (with_payload,) = decided(home, report("apart-third"))
    (without,) = decided(home, apart("apart-third"))
    assert (without["decision"], without["message_id"]) == ("duplicate", with_payload["message_id"])


def test_a_payload_that_is_gone_makes_a_dead_letter_which_can_be_redriven(home: Home) -> None:
    (retry,) = decided(home, apart("apart-gone"))
    (dead,) = decided(home, Result(retry, "failed", error_name="PAYLOAD_GONE", error_kind="fatal"))
    assert (dead["decision"], dead["reason"], dead["error_class"], dead["attempt"]) == ("dead_letter", "send_failed", "PAYLOAD_GONE", 1)
    assert payload(dead) == payload(ready(home, dead)) == (True, None, None)
    home.append_results(Result(dead, offset=5))
    (shown,) = collected(home.spark.sql(f"select * from {home.schema}.dead_letters where {named(dead['message_id'])}"))
    assert (shown["by_reference"], shown["value"], shown["state"]) == (True, None, "open")
    (redriven,) = decided(home, order("redrive", dead))
    assert (redriven["decision"], payload(redriven)) == ("redrive", (True, None, None))


def test_a_dead_letter_that_is_refused_is_still_by_reference(home: Home) -> None:
    (dead,) = decided(home, apart("apart-refused", error="KeyError"))
    (again,) = decided(home, Result(dead, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison"))
    assert (again["reason"], again["payload_delivery"]) == ("dead_letter_failed", dead["delivery_id"])
    assert payload(ready(home, again)) == (True, None, None)
    home.append_results(Result(again, offset=1))
    (shown,) = home.spark.sql(f"select by_reference from {home.schema}.dead_letters where {named(dead['message_id'])}").collect()
    assert shown["by_reference"] is True
    (redriven,) = decided(home, order("redrive", again))
    assert payload(redriven) == (True, None, None)


def test_privacy_holds_for_what_lies_elsewhere(home: Home) -> None:
    hidden, dropped = decided(home, apart("hidden-things", 70, "KeyError"), apart("dropped-things", 70, "KeyError"))
    assert payload(ready(home, hidden)) == (True, None, None)
    assert ready(home, hidden)["denied_headers"] == ["authorization", "^x-secret-", "x-dlq-metadata"]
    assert payload(dropped) == (False, None, None)
    assert ("redrive-payload", b"omitted") in pairs(ready(home, dropped)["dead_letter_headers"])
    (refused,) = decided(home, order("redrive", dropped))
    assert (refused["decision"], refused["reason"]) == ("refused", "payload_was_dropped")


def test_what_share_groups_did_not_copy_is_read_from_the_original_record(home: Home) -> None:
    def dead_letter(offset: int, **content: bytes | None) -> Report:
        said = {"topic": b"told.shared", "partition": b"0", "offset": b"%d" % offset, "group": b"billing"}
        headers = tuple((f"__dlq.errors.{name}", value) for name, value in said.items())
        return Report(headers, source="in-share-group").but(**content)

    empty, copied, tombstone = decided(home, dead_letter(1, key=None, value=None), dead_letter(2), dead_letter(3, value=None))
    assert payload(empty) == (True, None, None)
    assert payload(copied) == (False, b"key", b"value")
    assert payload(tombstone) == (False, b"key", None)
