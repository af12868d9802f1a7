"""The words of the seeds: each has what the SQL needs for it, and those that must stand twice are the same in both places."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jinja2.nativetypes
import pytest
import yaml

from orchestration.rules.policies import FORMS, TAKES
from orchestration.rules.seed_columns import COLUMNS, DEFAULTS
from orchestration.rules.vocabulary import (
    DIALECTS,
    ERROR_KINDS,
    EVERYTHING,
    HEADER_PROFILES,
    KIND_PRECEDENCE,
    LINK_PLACEHOLDERS,
    OTHER_KIND_WORDS,
    TOPIC_PLACEHOLDERS,
)
from publisher.errors import Concerns
from tests.unit.jinja_macros import PROJECT, macros, returned

VARS = yaml.safe_load((PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]


def test_each_dialect_has_a_macro_and_each_macro_a_dialect() -> None:
    made = {path.stem.removeprefix("dialect_") for path in (PROJECT / "macros" / "dialects").glob("dialect_*.sql")}
    assert made == {name.replace("-", "_") for name in DIALECTS}


def test_each_kind_has_its_place_and_no_word_stands_for_two() -> None:
    assert sorted(KIND_PRECEDENCE) == sorted(ERROR_KINDS)
    words = [word.lower() for word in (*ERROR_KINDS, *OTHER_KIND_WORDS)]
    assert len(words) == len(set(words))


def test_the_sql_reads_a_word_as_the_var_has_it() -> None:
    said = macros("classification", "error_kind", var=VARS.__getitem__).error_kind("word")
    kinds = dict(re.findall(r"when '(.+)' then '(\w+)'", said))
    assert kinds == {word.lower(): kind for kind, words in VARS["error_kinds"].items() for word in (kind, *words)}


def _headers_of(profile: str) -> str:
    """What the macro of a header profile says, with the names of headers as they stand in it."""
    name = f"dead_letter_headers_{profile.replace('-', '_')}"
    used = ("utf8_cut", "utf8_text", "iso_time", "big_endian_bytes", "big_endian_shortest", "dead_letter_stack", "dead_letter_reason")
    given = {macro: lambda *_: "" for macro in used}
    return str(getattr(macros("dead_letter_headers", "header", "dlq_headers", "spring_headers", name, **given), name)())


def test_each_header_profile_has_a_macro_and_each_macro_a_profile() -> None:
    made = {path.stem for path in (PROJECT / "macros" / "dead_letter_headers").glob("dead_letter_headers_*.sql")}
    assert made == {f"dead_letter_headers_{profile.replace('-', '_')}" for profile in (*HEADER_PROFILES, "of")}


def test_a_dead_letter_has_the_headers_of_its_profile() -> None:
    context = {f"dead_letter_headers_{profile.replace('-', '_')}": partial("{}: its own".format, profile) for profile in HEADER_PROFILES}
    folder, names = "dead_letter_headers", ("header", "dead_letter_headers", "dead_letter_headers_of")
    given: dict[str, Any] = {"context": context, "dead_letter_headers_dlq": lambda: "dlq: its own"}
    said = macros(folder, *names, var=VARS.__getitem__, **given).dead_letter_headers()
    assert dict(re.findall(r"when '([\w-]+)' then ([\w-]+): its own", said)) == {name: name for name in HEADER_PROFILES if name != "dlq"}
    assert "else dlq: its own" in said


@pytest.mark.parametrize("profile", HEADER_PROFILES)
def test_what_a_profile_writes_is_removed_before_the_next_death(profile: str) -> None:
    written = re.findall(r"'([\w.-]+)' as key", _headers_of(profile))
    assert written
    # those of redrive itself are removed by dialect_owns
    assert {name for name in written if not name.startswith("redrive-")} <= set(VARS["header_profiles"][profile])


def test_links_know_the_same_placeholders() -> None:
    assert sorted(returned("marts", "link_placeholders", iso_time=str)) == sorted(LINK_PLACEHOLDERS)


@pytest.mark.parametrize("macro", ["topic_from_template", "destination_pattern"])
def test_templates_of_destinations_know_the_same_placeholders(macro: str) -> None:
    said = str(getattr(macros("routing", macro, kafka_topic=str), macro)("template", "some_group"))
    assert set(re.findall(r"'\{(\w+)\}'", said)) == set(TOPIC_PLACEHOLDERS)


def test_what_routes_say_for_people_may_be_left_out() -> None:
    empty = {column for column, default in DEFAULTS["routes"].items() if default == ""}
    assert set(returned("marts", "route_descriptions")) == empty - {"sequence"}


def test_a_route_that_names_no_privacy_keeps_all() -> None:
    assert DEFAULTS["routes"]["privacy"] == EVERYTHING


def test_the_publisher_knows_what_an_error_may_concern() -> None:
    assert COLUMNS["publish_error_kinds"]["concerns"]("no such word") == f"must be one of {', '.join(Concerns)}"


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_policies_has_an_example_of_its_own_and_takes_what_it_takes_by_place(form: str) -> None:
    assert re.sub(r"\(.*", "", FORMS[form]).lower() == form
    assert set(VARS["policy_forms"][form].get("by_place", ())) <= set(TAKES[form])


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
