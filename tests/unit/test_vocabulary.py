"""The words of the seeds: those that Python does not read in dbt_project.yml are the same in macros, YAML files and Python."""

from __future__ import annotations

import re
from typing import Any

import jinja2.nativetypes
import pytest
import yaml

from orchestration.rules.policies import _BY_PLACE, FORMS, TAKES
from orchestration.rules.seed_columns import COLUMNS, DEFAULTS
from orchestration.rules.vocabulary import (
    CONCERNS,
    DIALECTS,
    ERROR_KINDS,
    HEADER_PROFILES,
    KIND_PRECEDENCE,
    LINK_PLACEHOLDERS,
    NO_TOPIC,
    OTHER_KIND_WORDS,
    TOPIC_PLACEHOLDERS,
)
from publisher.errors import Concerns
from tests.unit.jinja_macros import PROJECT, macros, returned

VARS = yaml.safe_load((PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]


def test_each_dialect_has_a_macro_and_each_macro_a_dialect() -> None:
    made = {path.stem.removeprefix("dialect_") for path in (PROJECT / "macros" / "dialects").glob("dialect_*.sql")}
    assert made == set(DIALECTS)


def test_each_kind_has_its_place_and_no_word_stands_for_two() -> None:
    assert sorted(KIND_PRECEDENCE) == sorted(ERROR_KINDS)
    words = [word.lower() for word in (*ERROR_KINDS, *OTHER_KIND_WORDS)]
    assert len(words) == len(set(words))


def test_the_sql_reads_a_word_as_the_var_has_it() -> None:
    said = macros("classification", "error_kind", var=VARS.__getitem__).error_kind("word")
    kinds = dict(re.findall(r"when '(.+)' then '(\w+)'", said))
    assert kinds == {word.lower(): kind for kind, words in VARS["error_kinds"].items() for word in (kind, *words)}


def test_each_header_profile_has_names_and_a_macro() -> None:
    assert tuple(returned("dead_letter_headers", "dead_letter_header_names")) == HEADER_PROFILES
    folder = PROJECT / "macros" / "dead_letter_headers"
    called = re.findall(r"dead_letter_headers_(\w+)\(\)", (folder / "dead_letter_headers.sql").read_text(encoding="utf-8"))
    assert sorted(called) == sorted(HEADER_PROFILES)
    assert all((folder / f"dead_letter_headers_{profile}.sql").is_file() for profile in HEADER_PROFILES)


def test_links_know_the_same_placeholders() -> None:
    assert sorted(returned("marts", "link_placeholders", iso_time=str)) == sorted(LINK_PLACEHOLDERS)


@pytest.mark.parametrize("macro", ["topic_from_template", "destination_pattern"])
def test_templates_of_destinations_know_the_same_placeholders(macro: str) -> None:
    said = str(getattr(macros("routing", macro, kafka_topic=str), macro)("template", "some_group"))
    assert set(re.findall(r"'\{(\w+)\}'", said)) == set(TOPIC_PLACEHOLDERS)


def test_what_routes_say_for_people_may_be_left_out() -> None:
    assert set(returned("marts", "route_descriptions")) == {column for column, default in DEFAULTS["routes"].items() if default == ""}


def test_no_topic_is_the_same_word() -> None:
    assert macros("routing", "no_topic").no_topic().strip() == NO_TOPIC


def test_the_publisher_knows_the_same_scopes() -> None:
    assert tuple(Concerns) == CONCERNS


def test_policies_have_the_same_forms() -> None:
    forms = returned("policies", "policy_forms")
    options = tuple(returned("policies", "policy_options"))
    assert {form: (*said["takes"], *(() if said.get("bare") else options)) for form, said in forms.items()} == TAKES
    assert set(FORMS) == set(forms)
    assert {form: tuple(said["by_place"]) for form, said in forms.items() if "by_place" in said} == _BY_PLACE


def _accepted() -> list[Any]:
    seeds = yaml.safe_load((PROJECT / "models" / "_seeds.yml").read_text(encoding="utf-8"))["seeds"]
    return [
        pytest.param(seed["name"], column["name"], test["accepted_values"]["arguments"]["values"], id=f"{seed['name']}.{column['name']}")
        for seed in seeds
        for column in seed.get("columns", ())
        for test in column.get("data_tests", ())
        if isinstance(test, dict) and "accepted_values" in test
    ]


@pytest.mark.parametrize(("seed", "column", "values"), _accepted())
def test_dbt_accepts_what_python_accepts(seed: str, column: str, values: list[str] | str) -> None:
    if isinstance(values, str):
        values = jinja2.nativetypes.NativeEnvironment().from_string(values).render(var=VARS.__getitem__)
    check = COLUMNS[seed][column]
    assert [value for value in values if check(str(value)) is not None] == []
    # of what is one of a few words, each other word is refused by both
    told = re.search(r"must be one of (.+)", str(check("no such word")))
    assert told is None or set(told[1].split(", ")) == set(values)
