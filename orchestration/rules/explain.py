"""Tells a message's history in words, for `redrive explain` and `redrive dlq show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


def in_words(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """A message's history in words: pairs of a time and what happened then; a line that explains the one before has no time."""
    last_failure: tuple[Any, ...] | None = None
    for row in rows:
        at = _time(row["at"])
        if row["what"] == "sent":
            yield at, _send_text(row)
            continue
        if row.get("command"):
            ticket = f" ({row['ticket']})" if row["ticket"] else ""
            yield at, f"{row['who']} gave command {row['command']}: {row['why']}{ticket}"
            yield "", _decision_text(row)
            continue
        if row["failed_at"] is None:
            # a row of an outbox: nothing has failed yet
            yield at, _decision_text(row)
            continue
        failure = (row["life_cycle"], row["attempt"], row["failed_at"], row["error_class"], row["error_message"])
        # a decision that repeats the last failure, as for a failed send, gets no failure line: nothing has failed since
        if failure != last_failure:
            yield from _failure_lines(row)
        last_failure = failure
        yield at, _decision_text(row)
        if row["rules_have_changed"]:
            yield "", "the rules have changed since: today another decision may be made"


def _failure_lines(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    failed = f"{row['error_class'] or 'an error without a class'}{': ' + row['error_message'] if row['error_message'] else ''}"
    bound = "" if row["max_attempts"] is None else f" of {row['max_attempts']}"
    counted = "" if row["attempt"] is None else f", attempt {row['attempt']}{bound}"
    yield _time(row["failed_at"] or row["at"]), f"failed{counted}: {failed}"
    if row["rule"]:
        matched = f", which matched {row['matched']}" if row["matched"] else ""
        yield "", f"{row['error_kind']}, by {row['rule']}{matched}"
    for rule in row["passed_over"] or ():
        yield "", f"not by {rule}: its message, code or header doesn't match"


def _decision_text(row: Mapping[str, Any]) -> str:
    where = f" to {row['topic']}" if row["topic"] else ""
    when = f", due at {_time(row['due_at'])}" if row["delivery_id"] else ""
    decided = f"{row['decision']} ({row['reason']}){where}{when}"
    if row["delay_ms"] is None:
        return decided
    base = row.get("base_delay_ms")
    if row["error_kind"] == "backpressure" or base is None:
        return f"{decided}: {row['delay_ms']} ms by {row['policy']}: {row['policy_text']}"
    quota = row["quota_multiplier"] if row["error_kind"] == "quota" else 1
    by_quota = "" if quota == 1 else f" x {quota:g} for the quota"
    jitter = f" x {row['delay_ms'] / (base * quota):.3f} of jitter" if base * quota else ""
    return f"{decided}: {base:g} ms{by_quota}{jitter} = {row['delay_ms']} ms by {row['policy']}: {row['policy_text']}"


def _send_text(row: Mapping[str, Any]) -> str:
    if row["outcome"] == "delivered":
        return f"sent to {row['topic']}/{row['partition']}/{row['offset']}, {row['lateness_ms']} ms after it was due"
    if row["outcome"] == "absent":
        return f"not sent to {row['topic']}: the outcome was unknown, and the record is not in the topic"
    if row["outcome"] == "unknown":
        return f"sent to {row['topic']}, with an unknown outcome: sent again after {_time(row['not_before'])}"
    if row["outcome"] == "held":
        return f"not sent to {row['topic']}: held by {row['error_message']}"
    return f"not sent to {row['topic']}: {row['outcome']}: {row['error_class']}: {row['error_message']} ({row['error_kind']})"


def _time(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
