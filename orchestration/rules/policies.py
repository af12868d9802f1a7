"""Explains what is wrong with the text of a policy that the SQL can't parse. The parser itself is SQL: the macro read_policies."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from orchestration.rules.vocabulary import VARS

TAKES: Final = {
    form: (*said["takes"], *(() if said.get("bare") else VARS["policy_options"])) for form, said in VARS["policy_forms"].items()
}
"""The clauses of each form."""
FORMS: Final[dict[str, str]] = {form: said["example"] for form, said in VARS["policy_forms"].items()}
"""An example of each form."""
_BY_PLACE: Final[dict[str, list[str]]] = {form: said["by_place"] for form, said in VARS["policy_forms"].items() if "by_place" in said}
_DURATIONS = ("initial", "max", "increment", "max_elapsed", "backpressure_delay")


def objections(definition: str) -> Iterator[str]:
    """What is wrong with each clause of a policy, and what would be right."""
    whole = re.fullmatch(r"([^()]*)(?:\(([^()]*)\))?\s*", definition)
    form = re.sub(r"\s+", "", whole[1]).lower() if whole else ""
    if whole is None or form not in FORMS:
        near = difflib.get_close_matches(form or definition.lower().partition("(")[0], FORMS, n=1)
        hint = f"did you mean {FORMS[near[0]]}? " if near else ""
        yield f"{definition!r} is none of the forms of a policy: {hint}There are {', '.join(FORMS.values())}"
        return
    clauses = [clause.strip() for clause in whole[2].split(",")] if whole[2] and whole[2].strip() else []
    seen: set[str] = set()
    by_place = 0
    for place, clause in enumerate(clauses):
        name, given, value = (part.strip().lower() for part in clause.partition("="))
        if not given:
            by_place += 1
            problem = _by_place(form, place, clause, is_last=not any("=" not in later for later in clauses[place + 1 :]))
        else:
            problem = f"{name} is given twice" if name in seen else _named(form, name, re.sub(r"\s+", "", value))
            seen.add(name)
        if problem:
            yield f"{clause!r}: {problem}"
    if by_place < len(_BY_PLACE.get(form, ("",) if "step" in TAKES[form] else ())):
        yield f"something is missing that has no default: {FORMS[form]}"


def _by_place(form: str, place: int, clause: str, *, is_last: bool) -> str | None:
    text = re.sub(r"\s+", "", clause).lower()
    if not text:
        return "is empty: a comma too many"
    if form in _BY_PLACE:
        return (
            None
            if place < len(_BY_PLACE[form]) and re.fullmatch(r"\d{1,9}([.]\d{1,3})?", text)
            else f"must be a number, as in {FORMS[form]}"
        )
    if form == "fixeddelayretrypolicy":
        return None if re.fullmatch(r"\d+x[1-9]\d*", text) else f"must be milliseconds x retries, as in {FORMS[form]}"
    if form != "fixed":
        return f"has no name: {form} takes {', '.join(TAKES[form])}"
    duration, times, count = text.partition("x")
    if problem := _duration(duration):
        return problem
    if times and not re.fullmatch(r"0*[1-9]\d*", count):
        return "the number of times must be 1 or more, as in 5s x 3"
    return None if times or is_last else "only the last step may go on without end: how often is this one, as in 5s x 3?"


def _named(form: str, name: str, value: str) -> str | None:
    takes = [known for known in TAKES[form] if known != "step"]
    if name not in takes:
        near = difflib.get_close_matches(name, takes, n=1)
        return f"{form} takes no {name}; " + (f"did you mean {near[0]}?" if near else f"it takes {', '.join(takes)}")
    if name in _BY_PLACE.get(form, ()):
        return f"is given by its place, as in {FORMS[form]}"
    if name in _DURATIONS:
        return _duration(value)
    if name in ("factor", "quota_multiplier"):
        return None if _number(value) is not None and 1 <= float(value) <= 1000 else "must be a number from 1 to 1000"
    if name == "jitter":
        return None if _number(value) is not None and float(value) < 1 else "must be a number from 0 to less than 1"
    if name == "on_exhausted":
        return None if value in ("dead_letter", "drop") else "must be dead_letter or drop"
    return None if re.fullmatch(r"\d{1,9}", value) else "must be a whole number"


def _duration(value: str) -> str | None:
    if re.fullmatch(r"\d{1,9}([.]\d{1,3})?", value):
        return f"lacks a unit: {value}s, {value}ms, {value}m, {value}h or {value}d"
    if not re.fullmatch(r"\d{1,9}([.]\d{1,3})?(ms|s|m|h|d)", value):
        return "must be a duration: 500ms, 1s, 1.5m, 2h, 1d"
    return None


def _number(value: str) -> float | None:
    return float(value) if re.fullmatch(r"\d{1,4}([.]\d{1,6})?", value) else None


def why_not(definition: str, clause: str) -> str:
    """Why the SQL can't parse a policy: all objections of this module; if it has none, the clause that the SQL didn't understand."""
    found = list(objections(definition))
    return "; ".join(found) if found else f"{clause!r} is not understood in {definition!r}: docs/policies.md has the grammar"
