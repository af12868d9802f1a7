"""The alerts load, fire when they should, and keep quiet when they should: played by Prometheus' own promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration.loop.metric_names import METRICS

PROJECT = Path(__file__).parents[2]
ALERTS = PROJECT / "orchestration" / "monitoring" / "alerts.yml"
RULES = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> Path:
    """The machine's promtool, or the one of Debian's package, unpacked among pytest's files: that needs no root."""
    installed = shutil.which("promtool")
    if installed:
        return Path(installed)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("promtool is not installed, and there is no apt-get to fetch it: install Prometheus to run the tests of the alerts")
    directory = Path(pytestconfig.cache.mkdir("promtool"))
    unpacked = directory / "usr" / "bin" / "promtool"
    if not unpacked.exists():
        # lists of its own: those of the system may be missing, and only root may fetch them
        for kept in ("lists/partial", "archives/partial"):
            (directory / kept).mkdir(parents=True, exist_ok=True)
        own = ["-o", f"Dir::State::Lists={directory}/lists", "-o", f"Dir::Cache={directory}", "-o", "APT::Sandbox::User="]
        for what in ("update", "download"):
            package = ["prometheus"] if what == "download" else []
            done = subprocess.run(["apt-get", *own, what, *package], cwd=directory, capture_output=True, text=True, timeout=240)
            if done.returncode:
                pytest.skip(f"promtool is not installed, and `apt-get {what}` can't fetch it: {done.stderr.strip()[-300:]}")
        (package_file,) = directory.glob("prometheus_*.deb")
        assert _run("dpkg-deb", "-x", package_file, directory).returncode == 0
        shutil.rmtree(directory / "lists")
        package_file.unlink()
    return unpacked


def test_each_alert_fires_when_it_should_and_not_before(promtool: Path, tmp_path: Path) -> None:
    played = (PROJECT / "tests" / "unit" / "alerts_test.yml").read_text(encoding="utf-8")
    tests = tmp_path / "alerts_test.yml"
    tests.write_text(played.replace("- ALERTS", f"- {ALERTS}", 1), encoding="utf-8")
    done = _run(promtool, "test", "rules", tests)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [case for test in yaml.safe_load(played)["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == {rule["alert"] for rule in RULES}
    quiet = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert quiet >= {rule["alert"] for rule in RULES if rule.get("for")}, "none is told before its time"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_there_are_and_names_a_page_that_there_is(rule: dict[str, Any]) -> None:
    told = {name for metric in METRICS for name in ((metric.name, f"{metric.name}_bucket") if metric.buckets else (metric.name,))}
    asked = set(re.findall(r"\bredrive_\w+", rule["expr"]))
    assert asked
    assert asked <= told
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (PROJECT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert heading in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
