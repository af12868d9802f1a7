"""The package's public face, and what it may know of."""

from __future__ import annotations

import subprocess
import sys

import publisher


def test_the_public_names_are_these() -> None:
    assert sorted(publisher.__all__) == [
        "ContractError",
        "ContradictedPropertyError",
        "ErrorKind",
        "PublisherError",
        "PublisherSettings",
        "READY",
        "RESULTS",
        "RejectedPropertiesError",
        "Scope",
        "SessionLostError",
        "SettingsError",
        "SupersededError",
        "classify",
        "error_kinds_from_rows",
        "publish",
        "refuse_superseded",
        "superseded_by",
        "take_charge",
    ]


def test_it_knows_kafka_and_arrow_and_nothing_of_the_rest() -> None:
    script = (
        "import sys, publisher; [getattr(publisher, name) for name in publisher.__all__]; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {"confluent_kafka", "pyarrow"} <= set(loaded)
    assert not {"dagster", "dbt", "orchestration", "pandas", "pyspark"} & set(loaded)


def test_who_asks_what_is_secret_waits_for_neither_arrow_nor_kafka() -> None:
    script = "import sys, publisher.redaction; print(*{name.partition('.')[0] for name in sys.modules})"

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert not {"confluent_kafka", "pyarrow"} & set(loaded)
