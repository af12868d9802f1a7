"""Retry policies in plain Python, to hold the SQL that reads and applies them against: what a text means, and texts to try.

Written from the grammar alone, without a look at the SQL. Where the grammar leaves a choice, the model takes these:

- A clause with `=` is a key=value clause, any other that isn't empty is positional: a number or a step, however bad. So
  `ExponentialRetryPolicy(1, boo, 2)` lacks nothing (`boo` is a bad value), `ExponentialRetryPolicy(1, , 2)` lacks a number, and `5s` in
  `fixed(5s, boo)` isn't the last step.
- Steps of `fixed` may stand anywhere among key=value clauses, even after all of them.
- A text has no or one pair of parentheses, and any other parenthesis spoils the whole text.
- White space is that of ASCII, and the whole text is given back untrimmed.

Longer than other modules: it is one model, and the rules above hold for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

WHITE_SPACE = " \t\n\v\f\r"
LONGEST_MS = 31_536_000_000
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds by unit."""


class NotUnderstood(Exception):  # noqa: N818
    """A policy has a clause that can't be read, or can't be read at all."""

    def __init__(self, clause: str) -> None:
        super().__init__(clause)
        self.clause = clause
        """The first bad clause as written, trimmed (empty for an empty one), or the whole text."""


@dataclass(frozen=True)
class Policy:
    """How often and how late to retry. It has no form any more: the fields that a form doesn't speak of don't change its delays."""

    initial_ms: int
    """The delay of the first failure; 0 with steps or without retries."""
    factor: float
    """What each delay is multiplied by for the next one; 1 unless exponential."""
    increment_ms: int
    """What is added to each delay for the next one; 0 unless linear."""
    max_ms: int
    """No delay is longer; 0 with steps (whose delays it doesn't bound) or without retries."""
    jitter: float
    """The share of a delay that is left to chance, at least 0 and less than 1."""
    steps: tuple[tuple[int | None, int], ...]
    """(times, delay in milliseconds) in order. None in the last one: without end. Empty in forms without steps."""
    max_attempts: int | None
    """How often a message is processed, the first time included; None: without end."""
    max_elapsed_ms: int | None
    on_exhausted: str
    """dead_letter or drop."""
    quota_multiplier: float
    backpressure_ms: int


@dataclass(frozen=True)
class Form:
    """What may stand in the parentheses after a name."""

    keys: tuple[str, ...]
    """All keys that the form allows."""
    numbers: tuple[str, ...] = ()
    """What its bare numbers mean by place; all of them are required."""
    has_steps: bool = False
    """It takes steps, at least one."""
    is_of_article: bool = False
    """Positional clauses stand first, and durations in them are bare numbers."""
    max_attempts: int | None = None
    """A bound that the form itself sets."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What its keys mean when they aren't given, where that differs from DEFAULTS."""


COMMON_KEYS = ("attempts", "max_elapsed", "jitter", "on_exhausted", "quota_multiplier", "backpressure_delay")

FORMS = {
    "exponential": Form(
        keys=("initial", "factor", "max", *COMMON_KEYS),
        defaults={"initial": 1_000, "factor": 2.0, "max": 60_000, "jitter": 0.3},
    ),
    "linear": Form(
        keys=("initial", "increment", "max", *COMMON_KEYS),
        defaults={"initial": 1_000, "increment": 1_000, "max": 60_000, "jitter": 0.3},
    ),
    "fixed": Form(keys=COMMON_KEYS, has_steps=True),
    "none": Form(keys=("on_exhausted",), max_attempts=1),
    "exponentialretrypolicy": Form(keys=COMMON_KEYS, numbers=("initial", "max", "factor"), is_of_article=True),
    "limitedexponentialretrypolicy": Form(keys=COMMON_KEYS, numbers=("initial", "max", "factor", "retries"), is_of_article=True),
    "fixeddelayretrypolicy": Form(keys=COMMON_KEYS, has_steps=True, is_of_article=True),
}
"""By name in lower case."""

DEFAULTS: dict[str, Any] = {
    "initial": 0,
    "increment": 0,
    "max": 0,
    "factor": 1.0,
    "retries": None,
    "attempts": None,
    "max_elapsed": None,
    "jitter": 0.0,
    "on_exhausted": "dead_letter",
    "quota_multiplier": 5.0,
    "backpressure_delay": 1_000,
}
"""What keys (and numbers by place) mean when they aren't given; durations in milliseconds."""


def read_policy(text: str) -> Policy:
    """The policy that a text describes. Raises NotUnderstood."""
    name, clauses = _take_apart(text)
    form = FORMS.get(name)
    if form is None:
        raise NotUnderstood(text)
    positional = [place for place, clause in enumerate(clauses) if clause and "=" not in _bare(clause)]
    if len(positional) < (1 if form.has_steps else len(form.numbers)):
        raise NotUnderstood(text)

    said: dict[str, Any] = {}
    steps: list[tuple[int | None, int]] = []
    key_was_given = False
    for place, clause in enumerate(clauses):
        bare = _bare(clause)
        try:
            if place not in positional:
                key, _, value = bare.partition("=")
                if key not in form.keys or key in said:
                    raise ValueError(bare)
                said[key] = READERS[key](value)
                key_was_given = True
            elif form.is_of_article and key_was_given:
                raise ValueError(bare)
            elif form.has_steps:
                steps.append(_step(bare, form, is_last=place == positional[-1]))
            elif place < len(form.numbers):
                meaning = form.numbers[place]
                said[meaning] = _milliseconds(bare, "s") if meaning in ("initial", "max") else READERS[meaning](bare)
            else:
                raise ValueError(bare)
        except ValueError:
            raise NotUnderstood(clause) from None
    return _policy(form, {**DEFAULTS, **form.defaults, **said}, tuple(steps))


def delay_ms(policy: Policy, failures: int) -> float:
    """How long the retry after the n-th failure (from 1) waits before jitter, in milliseconds; finite for whatever n.

    Past the end of steps, where a policy has no more retries, it is the delay of the last step.
    """
    if policy.steps:
        covered = 0
        for times, delay in policy.steps:
            if times is None:
                return float(delay)
            covered += times
            if failures <= covered:
                return float(delay)
        return float(policy.steps[-1][1])
    if policy.initial_ms == 0 and policy.increment_ms == 0:
        return 0.0
    try:
        grown = policy.initial_ms * policy.factor ** (failures - 1)
    except OverflowError:
        return float(policy.max_ms)
    return float(min(grown + policy.increment_ms * (failures - 1), policy.max_ms))


def _take_apart(text: str) -> tuple[str, list[str]]:
    """The name without white space in lower case, and the clauses as written, trimmed; none where there is nothing in parentheses."""
    found = re.fullmatch(r"([^()]*)(?:\(([^()]*)\)([^()]*))?", text)
    if found is None or _bare(found[3] or ""):
        raise NotUnderstood(text)
    clauses = [clause.strip(WHITE_SPACE) for clause in (found[2] or "").split(",")]
    return _bare(found[1]), [] if clauses == [""] else clauses


def _bare(text: str) -> str:
    """The text without white space, in lower case."""
    return "".join(character for character in text if character not in WHITE_SPACE).lower()


def _policy(form: Form, said: Mapping[str, Any], steps: tuple[tuple[int | None, int], ...]) -> Policy:
    """The policy of a form with these values by key."""
    bounds = [form.max_attempts, said["attempts"]]
    if said["retries"] is not None:
        bounds.append(said["retries"] + 1)
    times = [times for times, _ in steps if times is not None]
    if steps and len(times) == len(steps):
        bounds.append(sum(times) + 1)
    return Policy(
        initial_ms=said["initial"],
        factor=said["factor"],
        increment_ms=said["increment"],
        max_ms=said["max"],
        jitter=said["jitter"],
        steps=steps,
        max_attempts=min((bound for bound in bounds if bound is not None), default=None),
        max_elapsed_ms=said["max_elapsed"],
        on_exhausted=said["on_exhausted"],
        quota_multiplier=said["quota_multiplier"],
        backpressure_ms=said["backpressure_delay"],
    )


def _milliseconds(number: str, unit: str) -> int:
    """A number of a unit in whole milliseconds, halves up."""
    if not re.fullmatch(r"[0-9]{1,9}([.][0-9]{1,3})?", number):
        raise ValueError(number)
    milliseconds = int((Decimal(number) * UNITS[unit]).to_integral_value(ROUND_HALF_UP))
    if milliseconds > LONGEST_MS:
        raise ValueError(number)
    return milliseconds


def _duration(text: str) -> int:
    """In milliseconds."""
    found = re.fullmatch(r"([0-9.]+)(ms|s|m|h|d)", text)
    if found is None:
        raise ValueError(text)
    return _milliseconds(found[1], found[2])


def _number(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}([.][0-9]{1,6})?", text):
        raise ValueError(text)
    return float(text)


def _multiplier(text: str) -> float:
    number = _number(text)
    if not 1 <= number <= 1000:
        raise ValueError(text)
    return number


def _jitter(text: str) -> float:
    number = _number(text)
    if not 0 <= number < 1:
        raise ValueError(text)
    return number


def _whole(text: str, least: int = 1) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise ValueError(text)
    return int(text)


def _tries(text: str) -> int:
    """How often something is tried; 0 for once, as the first try has been made."""
    return max(_whole(text, 0), 1)


def _retries(text: str) -> int:
    return _whole(text, 0)


def _on_exhausted(text: str) -> str:
    if text not in ("dead_letter", "drop"):
        raise ValueError(text)
    return text


def _step(text: str, form: Form, *, is_last: bool) -> tuple[int | None, int]:
    """(times or None, delay in milliseconds) of a step without white space."""
    delay, x, times = text.partition("x")
    if not x and (form.is_of_article or not is_last):
        raise ValueError(text)
    return _whole(times) if x else None, _milliseconds(delay, "ms") if form.is_of_article else _duration(delay)


READERS: dict[str, Callable[[str], Any]] = {
    "initial": _duration,
    "increment": _duration,
    "max": _duration,
    "factor": _multiplier,
    "retries": _retries,
    "attempts": _tries,
    "max_elapsed": _duration,
    "jitter": _jitter,
    "on_exhausted": _on_exhausted,
    "quota_multiplier": _multiplier,
    "backpressure_delay": _duration,
}
"""What reads the value of a key, or of a bare number that means the same; raises ValueError for a bad one."""


# Texts to try. Most are values that a reader gets wrong.

DURATIONS = (
    *("0s", "0ms", "0.000d", "0.4ms", "0.499ms", "0.5ms", "1.5ms", "2.5ms", "0.001s", "1.234s", "0.001m", "0.125h", "1ms", "250ms", "1s"),
    *("000000007s", "5s", "90s", "1.5m", "10m", "2h", "7d", "0.333d", "999999999ms", "999999999.999ms"),
    *("365d", "8760h", "525600m", "31536000s", "31536000.000s", "364.999d"),
)
BARE_DURATIONS = ("0", "0.000", "0.4", "0.5", "0.001", "1", "1.234", "2.5", "5", "000000030", "60", "5000", "15000.5", "31536000")
"""In seconds or milliseconds."""
MULTIPLIERS = ("1", "1.0", "1.000001", "0001.5", "1.1", "2", "3", "2.718281", "10", "99.99", "999.999999", "1000", "1000.000000")
WHOLES = ("1", "2", "3", "4", "7", "10", "11", "100", "000000005", "2147483", "999999998", "999999999")
TEXTS = {
    **dict.fromkeys(("initial", "increment", "max", "max_elapsed", "backpressure_delay"), DURATIONS),
    **dict.fromkeys(("factor", "quota_multiplier"), MULTIPLIERS),
    **dict.fromkeys(("attempts", "retries"), ("0", "000000000", *WHOLES)),
    "jitter": ("0", "0.0", "0000.000000", "0.000001", "0.1", "0.25", "0.3", "0.5", "0.999999"),
    "on_exhausted": ("dead_letter", "drop"),
}
"""Good values by key."""

NO_NUMBERS = (
    "",
    "-1",
    "+1",
    "1e1",
    "1_0",
    ".5",
    "5.",
    "1..5",
    "1.2.3",
    "0x10",
    "five",
    "nan",
    "infinity",
    "null",
    "true",
    "\u0663",
    "\uff15",
    "1/2",
)
"""Bad values wherever a number is due, with or without a unit."""
NO_MULTIPLIERS = (*NO_NUMBERS, "0", "0.999999", "1000.000001", "1001", "9999", "10000", "00001", "1.1234567", "2x", "2s")
NO_WHOLES = (*NO_NUMBERS, "0", "000000000", "1.0", "1.5", "1234567890", "0000000001", "3x", "3s", "unlimited")
NO_DURATIONS = (
    *NO_NUMBERS,
    *(f"{number}s" for number in NO_NUMBERS),
    *("0", "1", "5.5", "s", "ms", "5 sec", "5us", "5 ns", "1w", "1y", "5min", "1h30m", "5ss", "5sms", "5s5", "s5", "5s x 3", "'5s'"),
    *("1.2345s", "1234567890ms", "0000000001s", "365.001d", "366d", "8760.001h", "525600.001m", "31536000.001s", "31536001s", "999999999d"),
)
NO_BARE_SECONDS = (*NO_NUMBERS[1:], "1.2345", "1234567890", "0000000001", "31536000.001", "31536001", "5s", "5m", "5ms", "5x3", "s")
NO_TEXTS = {
    **dict.fromkeys(("initial", "increment", "max", "max_elapsed", "backpressure_delay"), NO_DURATIONS),
    **dict.fromkeys(("factor", "quota_multiplier"), NO_MULTIPLIERS),
    **dict.fromkeys(("attempts", "retries"), tuple(no for no in NO_WHOLES if no not in ("0", "000000000"))),
    "jitter": (*NO_NUMBERS, "1.0", "1", "1.000000", "2", "0.9999999", "00000.5", "9999", "0.1s", "30%"),
    "on_exhausted": ("", "dead-letter", "deadletter", "dead_letters", "dropped", "retry", "dead_letter|drop", "drop=", "0", "null"),
}
"""Bad values by key."""
NO_STEPS = (
    *(
        "5",
        "5x3",
        "5000x3",
        "x",
        "x3",
        "5s x",
        "5s x 0",
        "5s x -1",
        "5s x 1.5",
        "5s x 1234567890",
        "5s x 3 x 2",
        "5s x 3s",
        "3 x 5s",
        "sx3",
    ),
    *(
        "5s 3",
        "5s * 3",
        "5s \u00d7 3",
        "5s / 3",
        "5s xx 3",
        "5s x three",
        "366d x 2",
        "1.2345s x 2",
        "-5s x 2",
        ".5s x 2",
        "5. s x 2",
        "1w x 2",
    ),
)
NO_ARTICLE_STEPS = (
    *("5000", "5s", "5000ms", "5s x 3", "5000ms x 3", "5000 x 3s", "x", "x3", "5000x", "5000x0", "5000x-1", "5000x1.5", "5000x1234567890"),
    *("5000x3x2", "5000 * 3", "5000 / 3", "5000xx3", "1234567890x2", "0.1234x2", "-5x2", ".5x2", "5.x2", "1e3x2", "5000xthree"),
)
NO_NAMES = (
    *("", "exponental", "exponentials", "exponential_", "exponentialretry", "retrypolicy", "fixeddelay", "fixed_delay", "fixed-delay"),
    *("limitedexponential", "limitedfixeddelayretrypolicy", "nones", "non", "null", "default", "drop", "attempts=3", "5s", "lin ear ly"),
)
NO_CLAUSES = (
    "boo",
    "=",
    "=3",
    "tries=3",
    "attempt=3",
    "retries=3",
    "attempts",
    "attempts 3",
    "attempts:3",
    "attempts==3",
    "max-elapsed=5s",
)
"""Bad wherever they stand, whatever the form."""
NO_CHARACTERS = "!;:%&\"'\\/#$+-*<>?@[]{}~\u0663\u00e9\u20ac\U0001f600"
"""No policy has these anywhere."""


@dataclass
class Draft:
    """A policy that isn't written yet."""

    name: str
    clauses: list[str]
    first: int
    """So many clauses at the start have to stay there."""

    @property
    def form(self) -> Form:
        return FORMS[self.name]

    def insert(self, random: Random, clause: str) -> None:
        """Put a clause somewhere, though not among those that stay at the start."""
        self.clauses.insert(random.randint(self.first, len(self.clauses)), clause)


def random_policy(random: Random) -> str:
    """A text that read_policy reads, of any form, written in any way."""
    draft = _draft(random)
    return _write(random, draft, with_parentheses=bool(draft.clauses) or random.random() < 0.5)


def broken_policy(random: Random) -> str:
    """A text that read_policy refuses: a good one with one thing wrong, at times with something more."""
    if random.random() < 0.01:
        return random.choice(("", " ", "()", "( )", "(,)", ",", "=", "(attempts=3)", "attempts=3", "5s x 3", "1, 60, 2", "null"))
    if random.random() < 0.2:
        return _damage_text(random, _write(random, _draft(random)))
    draft = _draft(random)
    random.choice(DAMAGES)(random, draft)
    if random.random() < 0.2:
        draft.insert(random, random.choice(("", *NO_CLAUSES)))
    return _write(random, draft)


def _draft(random: Random, names: Sequence[str] = tuple(FORMS)) -> Draft:
    """A good policy of one of these forms."""
    name = random.choice(names)
    form = FORMS[name]
    positional = _random_steps(random, form) if form.has_steps else [_random_number(random, meaning) for meaning in form.numbers]
    draft = Draft(name, positional, first=len(positional) if form.is_of_article else 0)
    for key in random.sample(form.keys, random.randint(0, len(form.keys))):
        draft.insert(random, _random_clause(random, key))
    return draft


def _random_clause(random: Random, key: str) -> str:
    value = random.choice(TEXTS[key])
    if TEXTS[key] is DURATIONS and random.random() < 0.5:
        value = _random_duration(random)
    return f"{key}={value}"


def _random_duration(random: Random) -> str:
    """At most a year."""
    unit = random.choice(tuple(UNITS))
    number = f"{random.randint(0, min(10 ** random.randint(1, 9), LONGEST_MS // UNITS[unit]) - 1)}"
    digits = random.randint(0, 3)
    return f"{number}.{random.randrange(10**digits):0{digits}}{unit}" if digits else f"{number}{unit}"


def _random_number(random: Random, meaning: str) -> str:
    """A bare number of the article's forms."""
    return random.choice(BARE_DURATIONS if meaning in ("initial", "max") else TEXTS[meaning])


def _random_steps(random: Random, form: Form) -> list[str]:
    """One to four, in `fixed` at times without end."""
    steps = []
    for _ in range(random.randint(1, 4)):
        delay = random.choice(BARE_DURATIONS) if form.is_of_article else random.choice((random.choice(DURATIONS), _random_duration(random)))
        steps.append(f"{delay} x {random.choice(WHOLES)}")
    if not form.is_of_article and random.random() < 0.4:
        steps[-1] = steps[-1].partition(" ")[0]
    return steps


def _write(random: Random, draft: Draft, *, with_parentheses: bool = True) -> str:
    """A draft as text, in whatever case, with white space wherever."""
    text = f"{draft.name}({', '.join(draft.clauses)})" if with_parentheses else draft.name
    case = random.choice(("lower", "upper", "mixed"))
    if case == "upper":
        text = text.upper()
    elif case == "mixed":
        text = "".join(random.choice((character.lower(), character.upper())) for character in text)
    density = random.choice((0, 0, 0.1, 0.5))
    spaced = (character + random.choice((" ", "  ", "\t", "\n")) * (random.random() < density) for character in text)
    return random.choice(("", "", " ", "\n")) + "".join(spaced)


def _damage_text(random: Random, text: str) -> str:
    """Damage that a text with parentheses can take in any place."""
    kind = random.choice(("no opening", "no closing", "before", "after", "swapped", "brackets", "character"))
    name, _, clauses = text.partition("(")
    clauses = clauses.rpartition(")")[0]
    if kind == "no opening":
        return f"{name}{clauses})"
    if kind == "no closing":
        return f"{name}({clauses}"
    if kind == "before":
        return random.choice(("boo", "1", "(", ")", "=", ",", "retry: ", "policy = ")) + text
    if kind == "after":
        return text + random.choice(("boo", "1", "(", ")", "()", ";", ",", ", drop", "(attempts=3)", "fixed(5s)"))
    if kind == "swapped":
        return f"{name}){clauses}("
    if kind == "brackets":
        return f"{name}[{clauses}]"
    place = random.randint(0, len(text))
    return text[:place] + random.choice(NO_CHARACTERS) + text[place:]


def _unknown_name(random: Random, draft: Draft) -> None:
    draft.name = random.choice(NO_NAMES)


def _unknown_clause(random: Random, draft: Draft) -> None:
    draft.insert(random, random.choice(NO_CLAUSES))


def _empty_clause(random: Random, draft: Draft) -> None:
    if not draft.clauses:
        draft.clauses = [""]
    draft.clauses.insert(random.randint(0, len(draft.clauses)), "")


def _clause_of_another_form(random: Random, draft: Draft) -> None:
    key = random.choice([key for key in TEXTS if key not in draft.form.keys])
    draft.insert(random, _random_clause(random, key))


def _clause_twice(random: Random, draft: Draft) -> None:
    key = random.choice(draft.form.keys)
    draft.insert(random, _random_clause(random, key))
    draft.insert(random, _random_clause(random, key))


def _bad_value(random: Random, draft: Draft) -> None:
    key = random.choice(draft.form.keys)
    draft.clauses = [clause for clause in draft.clauses if not clause.startswith(f"{key}=")]
    draft.insert(random, f"{key}={random.choice(NO_TEXTS[key])}")


def _bad_number(random: Random, draft: Draft) -> None:
    _become(draft, _draft(random, [name for name, form in FORMS.items() if form.numbers]))
    place = random.randrange(draft.first)
    meaning = draft.form.numbers[place]
    draft.clauses[place] = random.choice(NO_BARE_SECONDS if meaning in ("initial", "max") else [no for no in NO_TEXTS[meaning] if no])


def _bad_step(random: Random, draft: Draft) -> None:
    _become(draft, _draft(random, [name for name, form in FORMS.items() if form.has_steps]))
    place = random.choice(_positional(draft))
    draft.clauses[place] = random.choice(NO_ARTICLE_STEPS if draft.form.is_of_article else NO_STEPS)


def _endless_step_before_others(random: Random, draft: Draft) -> None:
    _become(draft, _draft(random, ["fixed"]))
    place = random.choice(_positional(draft))
    draft.clauses.insert(random.randint(0, place), random.choice(DURATIONS))


def _positional_missing(random: Random, draft: Draft) -> None:
    _become(draft, _draft(random, [name for name, form in FORMS.items() if form.has_steps or form.numbers]))
    places = _positional(draft)
    missing = places if draft.form.has_steps else random.sample(places, random.randint(1, len(places)))
    draft.clauses = [clause for place, clause in enumerate(draft.clauses) if place not in missing]
    draft.first -= min(draft.first, len(missing))


def _positional_too_many(random: Random, draft: Draft) -> None:
    _become(draft, _draft(random, [name for name, form in FORMS.items() if not form.has_steps]))
    draft.clauses.insert(draft.first, random.choice(("5", "5s", "5s x 3", "5000x3", "1.5")))


def _positional_after_key(random: Random, draft: Draft) -> None:
    _become(draft, _draft(random, [name for name, form in FORMS.items() if form.is_of_article]))
    draft.clauses = [clause for clause in draft.clauses if not clause.startswith("attempts=")]
    draft.clauses.insert(random.randrange(draft.first), _random_clause(random, "attempts"))


def _become(draft: Draft, other: Draft) -> None:
    """Be another draft, for damage that not every form can take."""
    draft.name, draft.clauses, draft.first = other.name, other.clauses, other.first


def _positional(draft: Draft) -> list[int]:
    """The places of its numbers or steps."""
    return [place for place, clause in enumerate(draft.clauses) if "=" not in clause]


DAMAGES: tuple[Callable[[Random, Draft], None], ...] = (
    _unknown_name,
    _unknown_clause,
    _empty_clause,
    _clause_of_another_form,
    _clause_twice,
    _bad_value,
    _bad_number,
    _bad_step,
    _endless_step_before_others,
    _positional_missing,
    _positional_too_many,
    _positional_after_key,
)
