"""The first start on a machine, which resolves Spark's packages, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dbt.harness import PROJECT

_ASKED = """
import json, sys
import pyarrow as pa
from orchestration.settings import load_settings
from orchestration.tables.spark import start_session

def jars(_):
    found = [name for name in sys.path if name.endswith(".jar") and "spark-core" not in name]
    yield pa.RecordBatch.from_arrays([pa.array(found, pa.string())], ["jar"])

spark = start_session(load_settings(home=sys.argv[1], project=sys.argv[2]))
of_tasks = [row.jar for row in spark.range(1).mapInArrow(jars, "jar string").collect()]
print(json.dumps([[name for name in sys.path if name.endswith(".jar")], of_tasks]))
"""


@pytest.mark.long
def test_the_first_start_keeps_where_the_jars_are_and_gives_python_none_of_them(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", _ASKED, str(tmp_path / "home"), str(PROJECT)]
    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [[], []]
    (kept,) = (tmp_path / "cache" / "redrive" / "packages").iterdir()
    assert "iceberg-spark-runtime" in kept.read_text(encoding="utf-8")
    # the process that resolved them wrote this, and the one after it didn't
    assert (tmp_path / "home" / "logs" / "spark.log").read_text(encoding="utf-8").count("loading settings ::") == 1
