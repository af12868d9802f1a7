"""The demo with an outbox. Its home is kept from run to run, the database of its application is not."""

from __future__ import annotations

from pathlib import Path

import psycopg

from orchestration.demo.broker import Broker
from orchestration.demo.outbox import OutboxDemo
from orchestration.demo.postgres import Postgres
from tests.loop.outbox_kit import needs_postgres

pytestmark = needs_postgres


def _ids_of_a_run(kafka: dict[str, str], home: Path) -> set[int]:
    postgres = Postgres()
    with OutboxDemo(kafka, home, postgres) as demo:
        demo.write(240)
        with psycopg.connect(postgres.address) as connection:
            return {row[0] for row in connection.execute("select id from outbox")}


def test_two_runs_at_once_after_each_other_share_no_id(broker: Broker, tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    first, second = (_ids_of_a_run(kafka, tmp_path) for _ in range(2))
    assert len(first) == len(second) == 264
    assert not first & second
