"""Rules that can't be used: a loop does not start with them, and one that runs goes on by the old ones."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.loop import loop, preparation, rules_in_force
from orchestration.loop.health import SEEDS, Health
from orchestration.loop.loop import Loop
from orchestration.loop.rules_in_force import RulesInForce, seeds_file, seeds_stamp
from orchestration.loop.steps import Tick, reduce
from orchestration.loop.takeover import TakeOver
from orchestration.rules.policy_reading import PolicyProblem, PolicyReading
from orchestration.rules.seeds import SeedError, read_seeds
from orchestration.settings import Settings, load_settings
from orchestration.tables.dbt import DbtError, sql_digest
from tests.unit.loop_kit.steps import state_at

PROJECT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HASH = "the rules in the tables"
POLICY = "exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)"


@dataclass
class FakeDbt:
    """Notes what is run, or fails."""

    error: DbtError | None = None
    ran: list[str] = field(default_factory=list)

    def parse(self) -> None:
        pass

    def run(self, command: str, **_: object) -> None:
        self.ran.append(command)
        if self.error:
            raise self.error


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a home whose seeds are loaded, and whose views are made."""
    seeds = shutil.copytree(PROJECT / "dbt_project" / "seeds", tmp_path / "seeds")
    made = load_settings(
        home=tmp_path / "state", seeds=seeds, project=PROJECT, kafka={"bootstrap.servers": "127.0.0.1:1"}, look_ahead_seconds=0
    )
    made.make_home()
    seeds_file(made).write_text(seeds_stamp(read_seeds(seeds), HASH))
    made.project_digest.write_text(sql_digest(made))
    return made


@pytest.fixture
def rules(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> RulesInForce:
    """The rules of a loop that has loaded them. The SQL refuses policies with `faktor`."""

    def read(_: object, __: object, policies: dict[str, str]) -> PolicyReading:
        return PolicyReading(tuple(PolicyProblem(*one, "faktor=2") for one in policies.items() if "faktor" in one[1]), {})

    monkeypatch.setattr(rules_in_force, "read_policies", read)
    monkeypatch.setattr(rules_in_force, "dbt_interpreted", nullcontext)
    monkeypatch.setattr(RulesInForce, "loaded_hash", lambda _: HASH)
    seeds = read_seeds(settings.seeds)
    made = RulesInForce(settings, cast(Any, None), cast(Any, FakeDbt()), Health(lambda: NOW), seeds, lambda: None)
    made.load()
    return made


def change(settings: Settings, seed: str, text: str, instead: str) -> None:
    """Changes the file of a seed."""
    path = settings.seeds / f"{seed}.csv"
    old = path.read_text(encoding="utf-8")
    assert text in old, f"{text} is not in {path}"
    path.write_text(old.replace(text, instead), encoding="utf-8")


def why_not_loaded(rules: RulesInForce) -> str | None:
    """Runs the step; why it could not load the seeds, as the loop's health has it."""
    reduce(state_at(NOW), Tick(), rules.run(state_at(NOW), NOW), rules.health)
    return rules.health[SEEDS].why if SEEDS in rules.health else None


def test_a_file_that_cannot_be_read_leaves_the_old_rules_in_force(rules: RulesInForce, settings: Settings) -> None:
    assert why_not_loaded(rules) is None
    change(settings, "routes", "retry_policy", "retry_polizy")
    why = why_not_loaded(rules)
    assert why is not None
    assert "the old rules stay in force" in why
    assert "routes.csv:1: " in why
    assert (rules.hash, rules.is_stale, rules.dbt.ran) == (HASH, False, [])  # type: ignore[attr-defined]


def test_a_policy_that_the_sql_refuses_is_named_and_nothing_is_loaded(rules: RulesInForce, settings: Settings) -> None:
    change(settings, "retry_policies", "factor=2", "faktor=2")
    why = why_not_loaded(rules)
    assert why is not None
    assert "the old rules stay in force" in why
    assert "retry_policies.csv:2: definition: 'faktor=2': exponential takes no faktor; did you mean factor?" in why
    assert (rules.hash, rules.dbt.ran) == (HASH, [])  # type: ignore[attr-defined]


def test_what_dbt_cannot_load_is_tried_again(rules: RulesInForce, settings: Settings) -> None:
    dbt = cast(FakeDbt, rules.dbt)
    dbt.error = DbtError("no space left")
    change(settings, "retry_policies", "attempts=5", "attempts=6")
    assert "no space left" in (why_not_loaded(rules) or "")
    assert rules.hash == HASH
    dbt.error = None
    rules.health.recovered(SEEDS)
    assert why_not_loaded(rules) is None
    assert dbt.ran == ["seed", "seed", "run"]
    # they are loaded once
    assert why_not_loaded(rules) is None
    assert dbt.ran == ["seed", "seed", "run"]


@pytest.mark.parametrize(
    ("seed", "text", "instead", "said"),
    [
        ("routes", "retry_policy", "retry_polizy", r"routes[.]csv:1: "),
        ("retry_policies", "factor=2", "faktor=2", r"retry_policies[.]csv:2: definition: 'faktor=2'"),
    ],
)
def test_a_loop_with_rules_that_cannot_be_used_takes_nothing_over(
    rules: RulesInForce, settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: str, text: str, instead: str, said: str
) -> None:
    tables = SimpleNamespace(collect=lambda: [{"tableName": "deliveries"}, {"tableName": "rules"}])
    monkeypatch.setattr(loop, "start_session", lambda _: SimpleNamespace(sql=lambda _: tables))
    monkeypatch.setattr(loop, "begin_dbt", lambda *_: FakeDbt())
    monkeypatch.setattr(preparation, "migrate_tables", lambda *_: None)
    monkeypatch.setattr(preparation, "made_of", lambda *_: sql_digest(settings))
    took_over: list[object] = []
    monkeypatch.setattr(TakeOver, "run", lambda taking_over: took_over.append(taking_over))
    monkeypatch.setattr(loop, "interpreted", nullcontext)
    Loop(settings).start()
    assert len(took_over) == 1
    change(settings, seed, text, instead)
    with pytest.raises(SeedError, match=said):
        Loop(settings).start()
    assert len(took_over) == 1
