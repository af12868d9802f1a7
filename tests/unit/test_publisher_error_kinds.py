"""The table of publish errors: how it is read, and what an unlisted code means."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from publisher import SettingsError, error_kinds_from_rows
from publisher.errors import Concerns, ErrorKind, classify
from tests.unit.publisher_kit.tables import ERROR_KINDS


def test_rows_become_kinds_by_code_whatever_else_they_say() -> None:
    rows = [{"code": "-192", "name": "_MSG_TIMED_OUT", "error_kind": "retriable", "concerns": "connection", "why": "slow"}]

    assert error_kinds_from_rows(rows) == {-192: ErrorKind(-192, "_MSG_TIMED_OUT", "retriable", Concerns.CONNECTION)}


GOOD = {"code": 10, "name": "MSG_SIZE_TOO_LARGE", "error_kind": "poison", "concerns": "record"}


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{**GOOD, "code": "ten"}], "row 1: .*'ten'"),
        ([GOOD, {**GOOD, "code": 11, "concerns": "planet"}], "row 2: 'planet'"),
        ([{"code": 10, "name": "x", "concerns": "record"}], "row 1: 'error_kind'"),
        ([GOOD, GOOD], "row 2: code 10 is listed twice"),
    ],
)
def test_an_unreadable_row_is_named(rows: list[dict[str, object]], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        error_kinds_from_rows(rows)


@pytest.mark.parametrize("code", [-9999, -143, 87_000, 120])
def test_an_unlisted_code_charges_nothing(code: int) -> None:
    found = classify(code, ERROR_KINDS)

    assert (found.code, found.kind, found.concerns) == (code, "retriable", Concerns.CONNECTION)
    assert found.name


def test_the_shipped_table_names_codes_as_librdkafka_does() -> None:
    assert {code: kind.name for code, kind in ERROR_KINDS.items()} == {code: KafkaError(code).name() for code in ERROR_KINDS}
