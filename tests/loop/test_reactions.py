"""What a kind of error does to a message, on the real broker: how long it waits, and what it is charged."""

from __future__ import annotations

from tests.loop.harness import Record, Redrive


def _attempts(records: list[Record]) -> list[str | None]:
    return [record.header("redrive-attempt") for record in records]


def test_backpressure_charges_nothing(redrive: Redrive) -> None:
    redrive.domain("room")
    redrive.fails("room.orders", b"k", b"v", error="acme.BackpressureError")
    (first,) = redrive.retries("room", 1)
    redrive.report(first, error="acme.BackpressureError")
    redrive.report(redrive.retries("room", 2)[-1])
    retries = redrive.retries("room", 3)
    # it was turned away twice, and failed once
    assert _attempts(retries) == ["1", "1", "2"]
    rows = redrive.sql("select * from attempts where original_topic = 'room.orders' order by due_at")
    assert [(row["reason"], row["attempt"]) for row in rows] == [("backpressure", 0), ("backpressure", 0), ("retriable", 1)]
    assert all((row["due_at"] - row["failed_at"]).total_seconds() >= 1 for row in rows)
    redrive.settle()


def test_a_quota_that_is_used_up_is_given_five_times_as_long(redrive: Redrive) -> None:
    redrive.domain("quota")
    record = redrive.fails("quota.orders", b"k", b"v", error="acme.QuotaExceededError")
    (retry,) = redrive.retries("quota", 1)
    assert retry.timestamp - record.timestamp >= 5_000
    assert _attempts([retry]) == ["2"]
    (row,) = redrive.sql("select * from attempts where original_topic = 'quota.orders'")
    assert (row["reason"], row["delay_ms"]) == ("quota", 5_000)
    redrive.settle()


def test_a_wrapped_error_is_what_its_cause_is_and_a_blocking_one_has_a_route_of_its_own(redrive: Redrive) -> None:
    redrive.domain("chain")
    stack = "java.util.concurrent.ExecutionException: x\n\tat a.B(B.java:1)\nCaused by: java.lang.NullPointerException: y\n\tat c\n"
    said = [("redrive-error-stack", stack.encode())]
    redrive.fails("chain.orders", b"k", b"v", said, error="java.util.concurrent.ExecutionException")
    (dead,) = redrive.dead("chain", 1)
    assert dead.header("dlq-error-class") == "java.util.concurrent.ExecutionException"
    (row,) = redrive.sql("select * from attempts where original_topic = 'chain.orders'")
    assert (row["error_kind"], row["matched"]) == ("fatal", "java.lang.NullPointerException")
    redrive.fails("chain.orders", b"k", b"v2", error="acme.BlockingError")
    redrive.retries("chain", 1)
    (row,) = redrive.sql("select * from attempts where original_topic = 'chain.orders' and error_kind = 'blocking'")
    assert (row["policy"], row["max_attempts"], row["reason"]) == ("publish", None, "blocking")
    redrive.settle()


def test_a_start_loads_rules_only_if_they_are_others(redrive: Redrive) -> None:
    def commits() -> int:
        return len(redrive.sql(f"select * from {redrive.loop.schema}.error_rules.snapshots"))

    redrive.restart()
    before = commits()
    redrive.restart()
    assert commits() == before
    path = redrive.loop.settings.seeds / "error_rules.csv"
    rules = path.read_bytes()
    try:
        path.write_bytes(rules + b"acme.New,,,,fatal,*,*,*,\n")
        redrive.loop.tick()
        assert commits() > before
        redrive.domain("loaded")
        redrive.fails("loaded.orders", b"k", b"v", error="acme.New")
        redrive.dead("loaded", 1)
    finally:
        path.write_bytes(rules)
        redrive.loop.tick()
    redrive.settle()
