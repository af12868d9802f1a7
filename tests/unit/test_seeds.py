"""Seeds as files: what is wrong is told with file, line, value, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.seeds import SeedError, read_seeds, topic_matches

PROJECT_SEEDS = Path(__file__).parents[2] / "dbt_project" / "seeds"


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    for path in PROJECT_SEEDS.glob("*.csv"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_the_projects_own_seeds_are_valid() -> None:
    read = read_seeds(PROJECT_SEEDS)
    assert [row["policy"] for row in read.rows["retry_policies"]] == ["default", "publish"]


@pytest.mark.parametrize(
    ("seed", "row", "told"),
    [
        ("error_rules", "X,retryable,", "kind is 'retryable': must be one of retriable, fatal, poison"),
        ("error_rules", ",fatal,", "error_class is '': must not be empty"),
        ("error_rules", "TypeError,fatal,", "error_class TypeError stand on line"),
        ("error_rules", "X,fatal", "has 2 values, the header has 3 columns"),
        ("retry_policies", "p,0,1000,2,60000,0.3", "max_attempts is '0': must be a whole number from 1 to 2147483647"),
        ("retry_policies", "p,five,1000,2,60000,0.3", "max_attempts is 'five'"),
        ("retry_policies", "p,5,1000,0.5,60000,0.3", "factor is '0.5': must be a number from 1 to 1000"),
        ("retry_policies", "p,5,1000,2,60000,1", "jitter is '1': must be a number from 0 to less than 1"),
        ("retry_policies", "p,5,-1,2,60000,0", "initial_ms is '-1'"),
        ("sources", "s,failures,avro,,^.*,earliest", "dialect is 'avro': must be one of redrive, spring"),
        ("sources", "s,^fail(,redrive,,^.*,earliest", "topic is '^fail(': is no regular expression"),
        ("sources", "s,a topic,redrive,,^.*,earliest", "topic is 'a topic': must be a topic's name"),
        ("sources", "s,failures,redrive,,^.*,now", "start is 'now': must be one of earliest, latest"),
        ("routes", "orders,*,none,publish,{topic}-retry,{topic}.dlq", "retry_policy is 'none': must be a policy of retry_policies.csv"),
        ("routes", "orders,*,default,publish,{topik},{topic}.dlq", "retry_topic is '{topik}': must be a topic's name, in which"),
        ("routes", "orders,*,default,publish,redrive.failures,{topic}.dlq", "is read by the source 'failures'"),
        ("publish_error_kinds", "77777,X,fatal,record,", "code is '77777'"),
        ("publish_error_kinds", "9999,X,fatal,message,", "scope is 'message': must be one of record, topic, connection"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(seeds: Path, seed: str, row: str, told: str) -> None:
    path = seeds / f"{seed}.csv"
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    path.write_text("\n".join([*lines, row]) + "\n", encoding="utf-8")
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    assert told in str(error.value)
    assert f"{path}:{len(lines) + 1}:" in str(error.value)


def test_every_problem_is_told_not_only_the_first(seeds: Path) -> None:
    (seeds / "routes.csv").unlink()
    (seeds / "sources.csv").write_text("name,topic\n", encoding="utf-8")
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    assert len(error.value.problems) == 2


def test_a_changed_file_changes_the_digest(seeds: Path) -> None:
    before = read_seeds(seeds).digest
    (seeds / "error_rules.csv").open("a", encoding="utf-8").write("New,fatal,\n")
    assert read_seeds(seeds).digest != before


@pytest.mark.parametrize(
    ("topic", "pattern", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "*", True),
        ("orders2", "orders", False),
        ("orders.eu", "^orders[.]", True),
        ("x", "^orders", False),
    ],
)
def test_patterns(topic: str, pattern: str, matches: bool) -> None:
    assert topic_matches(topic, pattern) is matches
