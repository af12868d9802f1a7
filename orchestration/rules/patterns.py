"""Checks the regular expressions of the seeds: one that can take exponential time on some text is refused.

The engine that runs them (Java's) backtracks. `^(a+)+$` tries 2^n ways to divide n letters before it gives up, and a report with such a
text would stop the decide step. An expression is safe if no text can be divided between its repetitions in many ways. On its automaton:

- Two different ways from a state back to itself over the same text: the number of ways doubles with each turn, so time is exponential.
- A state that repeats over a text which also leads on to another repetition that takes it: each such pair multiplies the ways by the
  length of the text. Two repetitions in a row (`.*a.*b`) take quadratic time, which is bearable for texts of 1,024 characters, the
  most that rules see; three are refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

MOST_REPETITIONS = 2
"""The most repetitions in a row that may match the same text: the time grows with this power of the text's length."""
_MOST_CHARACTERS = 1000
_MOST_POSITIONS = 1000
_SEVERAL = 2
"""Ways are counted up to this number: two are as bad as more."""
_MOST_STEPS = 200_000
"""The most steps through the automaton, after which an expression counts as too large."""
# The pieces of an expression: what is escaped, a set, or a character. And the beginnings of those that Python reads, and Java doesn't.
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_NOT_JAVA = re.compile(r"\\U|\(\?(?:P|#|[a-zA-Z]*[aL])|\{(?!\d+(?:,\d*)?\})")
# A character of each category, and some that expressions hardly name, so that a negated set matches something.
_ALPHABET = "aZ5_ \n-.~\x00\u00e9\U0010fffd"


class _UnsafeError(Exception):
    """Why the expression is refused."""


@dataclass(frozen=True)
class _Part:
    """A part of an expression: in how many ways it matches the empty text; its first and last positions, each with its number of ways."""

    empty: int = 1
    first: Mapping[int, int] = field(default_factory=dict)
    last: Mapping[int, int] = field(default_factory=dict)


@dataclass
class _Automaton:
    """The positions of an expression: the characters that each takes, and the positions that follow it, with the number of ways."""

    alphabet: frozenset[str]
    has_branches: bool
    takes: list[frozenset[str]] = field(default_factory=list)
    follows: dict[int, Mapping[int, int]] = field(default_factory=dict)
    steps: int = 0
    looked: set[int] = field(default_factory=set)  # look-aheads and look-behinds that were checked

    def sequence(self, parts: Iterable[_Part]) -> _Part:
        whole = _Part()
        for part in parts:
            self._connect(whole.last, part.first)
            whole = _Part(
                min(whole.empty * part.empty, _SEVERAL),
                _sum(whole.first, _times(part.first, whole.empty)),
                _sum(_times(whole.last, part.empty), part.last),
            )
        return whole

    def position(self, characters: frozenset[str]) -> _Part:
        if len(self.takes) >= _MOST_POSITIONS:
            raise _UnsafeError(f"is too large to be checked: it has more than {_MOST_POSITIONS} characters when its {{n}} are written out")
        self.takes.append(characters)
        here = {len(self.takes) - 1: 1}
        return _Part(0, here, here)

    def repeated(self, part: _Part, *, at_least: int) -> _Part:
        self._connect(part.last, part.first)
        return _Part(part.empty + (at_least == 0), part.first, part.last)

    def _connect(self, last: Mapping[int, int], first: Mapping[int, int]) -> None:
        for before, ways in last.items():
            self.follows[before] = _sum(self.follows.get(before, {}), _times(first, ways))

    def next_of(self, state: int) -> Mapping[int, int]:
        return self.follows.get(state, {})

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _UnsafeError("is too large to be checked: divide it into several rules")


# a running loop reads its seeds in each tick: a check takes milliseconds for each expression, a quarter of a second for the project's own
@lru_cache(maxsize=4096)
def objection(pattern: str, *, ignore_case: bool = False) -> str | None:
    """What is wrong with a regular expression of the seeds; None for one that can be used on any text."""
    try:
        with warnings.catch_warnings():
            # sets that Python and Java read differently, such as [a&&b]
            warnings.simplefilter("error", FutureWarning)
            parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError, FutureWarning) as error:
        return f"is not a regular expression: {error}. It must be valid in Python's `re` and in Java: \\p{{L}} and (?<name>...) are not"
    if (found := _not_java(pattern)) is not None:
        return (
            f"is not a regular expression for Java: {found!r}. Write \\{{ and \\[ for the characters; (?P<name>...), (?#...), \\U, and the"
            " flags a and L are Python's alone"
        )
    if len(pattern) > _MOST_CHARACTERS:
        return f"has {len(pattern)} characters; {_MOST_CHARACTERS} are the most"
    try:
        _check(parsed, _alphabet(parsed), has_branches="|" in pattern, ignore_case=ignore_case)
    except _UnsafeError as unsafe:
        return str(unsafe)
    except RecursionError:
        return "is too large to be checked: its groups are nested too deeply"
    return None


def _not_java(pattern: str) -> str | None:
    """Something that Python reads, and Java doesn't, or otherwise: a set within a set is a union there."""
    for piece in _PIECE.finditer(pattern):
        if (found := _NOT_JAVA.match(pattern, piece.start())) is not None:
            return found[0]
        if len(piece[0]) > 1 and piece[0][0] == "[" and "[" in re.sub(r"\\.", "", piece[0][1:], flags=re.DOTALL):
            return piece[0]
    return None


def _check(parsed: Any, alphabet: frozenset[str], *, has_branches: bool, ignore_case: bool) -> None:
    automaton = _Automaton(alphabet, has_branches)
    # an expression that is not anchored is tried at each character, like one that begins with a repetition
    anchored = len(parsed) > 0 and parsed[0] == (sre.AT, sre.AT_BEGINNING)
    before = _Part() if anchored else automaton.repeated(automaton.position(alphabet), at_least=0)
    automaton.sequence((before, _built(automaton, parsed, ignore_case=ignore_case)))
    loops = _loops(automaton)
    for loop in loops:
        if _is_exponential(automaton, loop):
            raise _UnsafeError(
                "can take exponential time: a repetition in it can divide the same text in several ways, as (a+)+ and (a|a)* do; "
                "repeat one thing only, with something between the turns that the inner part doesn't match"
            )
    if (most := _longest_chain(automaton, loops)) > MOST_REPETITIONS:
        raise _UnsafeError(
            f"has {most} repetitions in a row that match the same text, as .*a.*b.* has: {MOST_REPETITIONS} are the most, "
            "as the time grows with that power of the text's length; use [^.]* and the like, or a shorter fragment"
        )


def _built(automaton: _Automaton, items: Any, *, ignore_case: bool) -> _Part:
    return automaton.sequence(_part(automaton, operation, argument, ignore_case=ignore_case) for operation, argument in items)


def _part(automaton: _Automaton, operation: Any, argument: Any, *, ignore_case: bool) -> _Part:
    if operation is sre.IN and automaton.has_branches and argument[0][0] is not sre.NEGATE:
        # Python's parser makes [aa] of a|a, which Java's engine tries twice
        return _either(automaton.position(_characters(sre.IN, [item], automaton.alphabet, ignore_case=ignore_case)) for item in argument)
    if operation in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
        return automaton.position(_characters(operation, argument, automaton.alphabet, ignore_case=ignore_case))
    if operation is sre.SUBPATTERN:
        _, added, _, items = argument
        return _built(automaton, items, ignore_case=ignore_case or bool(added & re.IGNORECASE))
    if operation is sre.ATOMIC_GROUP:
        return _built(automaton, argument, ignore_case=ignore_case)
    if operation is sre.BRANCH:
        return _either(_built(automaton, items, ignore_case=ignore_case) for items in argument[1])
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _repetition(automaton, *argument, ignore_case=ignore_case)
    if operation in (sre.ASSERT, sre.ASSERT_NOT):
        # it matches on its own
        if id(argument) not in automaton.looked:
            automaton.looked.add(id(argument))
            _check(argument[1], automaton.alphabet, has_branches=automaton.has_branches, ignore_case=ignore_case)
        return _Part()
    if operation is sre.AT:
        return _Part()
    raise _UnsafeError("refers back to what a group matched: the time that takes can't be bounded")


def _either(parts: Iterable[_Part]) -> _Part:
    branches = list(parts)
    return _Part(
        sum(branch.empty for branch in branches),
        _sum(*(branch.first for branch in branches)),
        _sum(*(branch.last for branch in branches)),
    )


def _sum(*ways: Mapping[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for some in ways:
        for position, count in some.items():
            found[position] = min(found.get(position, 0) + count, _SEVERAL)
    return found


def _times(ways: Mapping[int, int], factor: int) -> dict[int, int]:
    return {position: min(count * factor, _SEVERAL) for position, count in ways.items() if factor}


def _repetition(automaton: _Automaton, least: int, most: Any, items: Any, *, ignore_case: bool) -> _Part:
    if most == 1:
        part = _built(automaton, items, ignore_case=ignore_case)
        return _Part(part.empty + (least == 0), part.first, part.last)
    if least == most:
        turns = (_built(automaton, items, ignore_case=ignore_case) for _ in range(least))
        # what matches nothing but the empty text does so however often, which may be a billion times
        return automaton.sequence((first, *turns)) if (first := next(turns, _Part())).first else first
    # a bound is no help: (a{1,50}){1,50} explodes as (a+)+ does
    return automaton.repeated(_built(automaton, items, ignore_case=ignore_case), at_least=least)


def _characters(operation: Any, argument: Any, alphabet: frozenset[str], *, ignore_case: bool) -> frozenset[str]:
    def matches(character: str) -> bool:
        if operation is sre.ANY:
            return True
        if operation is sre.IN:
            negated = argument[0][0] is sre.NEGATE
            return negated != any(_is_in(item, character) for item in argument[negated:])
        return bool((ord(character) == argument) == (operation is sre.LITERAL))

    return frozenset(
        character
        for character in alphabet
        if matches(character) or (ignore_case and (matches(character.lower()) or matches(character.upper()[:1])))
    )


def _is_in(item: Any, character: str) -> bool:
    operation, argument = item
    if operation is sre.LITERAL:
        return bool(ord(character) == argument)
    if operation is sre.RANGE:
        return bool(argument[0] <= ord(character) <= argument[1])
    positive = {
        sre.CATEGORY_DIGIT: character.isdecimal(),
        sre.CATEGORY_SPACE: character.isspace(),
        sre.CATEGORY_WORD: character.isalnum() or character == "_",
    }
    negative = {
        sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
        sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
        sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD,
    }
    return bool(not positive[negative[argument]] if argument in negative else positive[argument])


def _alphabet(parsed: Any) -> frozenset[str]:
    """Enough characters to distinguish all sets of an expression: those that it names, the ends of its ranges, and their neighbours."""

    def codes(items: Any) -> Iterator[int]:
        if isinstance(items, int) and not isinstance(items, bool):
            yield from (items - 1, items, items + 1)
        elif isinstance(items, Sequence | _parser.SubPattern) and not isinstance(items, str):
            for item in items:
                yield from codes(item)

    named = {chr(code) for code in codes(parsed) if 0 <= code <= 0x10FFFF}
    return frozenset(named | {other for character in named for other in (character.lower(), character.upper()[:1])} | set(_ALPHABET))


def _loops(automaton: _Automaton) -> list[frozenset[int]]:
    """The loops of the automaton (strongly connected components), in the order of their first states."""
    reachable = [_reached(automaton, state) for state in range(len(automaton.takes))]
    loops = {frozenset(other for other in reachable[state] if state in reachable[other]) for state in range(len(reachable))}
    return sorted((loop for loop in loops if loop), key=min)


def _reached(automaton: _Automaton, state: int) -> set[int]:
    """What can be reached from a state in one step or more."""
    found: set[int] = set()
    open_ = list(automaton.next_of(state))
    while open_:
        here = open_.pop()
        if here not in found:
            found.add(here)
            open_ += automaton.next_of(here)
    return found


def _is_exponential(automaton: _Automaton, loop: frozenset[int]) -> bool:
    """Whether two different ways lead from a state of the loop back to it, over the same text."""
    if any(times > 1 for state in loop for after, times in automaton.next_of(state).items() if after in loop):
        return True
    graph: dict[tuple[int, int], set[tuple[int, int]]] = {}
    backward: dict[tuple[int, int], set[tuple[int, int]]] = {}
    open_ = [(state, state) for state in loop]
    while open_:
        pair = open_.pop()
        if pair in graph:
            continue
        graph[pair] = set()
        for one in automaton.next_of(pair[0]).keys() & loop:
            for other in automaton.next_of(pair[1]).keys() & loop:
                automaton.step()
                if automaton.takes[one] & automaton.takes[other]:
                    graph[pair].add((one, other))
                    backward.setdefault((one, other), set()).add(pair)
                    open_.append((one, other))
    # two ways that part and meet again; within a loop, they lead back to where they parted
    parted = [pair for pair in graph if pair[0] != pair[1]]
    meet_again: set[tuple[int, int]] = set()
    open_ = [(state, state) for state in loop]
    while open_:
        pair = open_.pop()
        if pair not in meet_again:
            meet_again.add(pair)
            open_ += backward.get(pair, ())
    return any(pair in meet_again for pair in parted)


def _longest_chain(automaton: _Automaton, loops: list[frozenset[int]]) -> int:
    """The largest number of loops in a row that can take the same text."""
    longest: dict[frozenset[int], int] = {}
    reachable = {loop: _reached(automaton, next(iter(loop))) for loop in loops}

    def length(loop: frozenset[int]) -> int:
        if loop not in longest:
            longest[loop] = 1
            behind = (other for other in loops if other != loop and other <= reachable[loop] and _take_the_same(automaton, loop, other))
            longest[loop] = 1 + max((length(other) for other in behind), default=0)
        return longest[loop]

    return max((length(loop) for loop in loops), default=0)


def _take_the_same(automaton: _Automaton, first: frozenset[int], second: frozenset[int]) -> bool:
    """Whether a text leads from a state of the first loop back to it, from there to a state of the second, and from that back to it."""
    for stays in first:
        for arrives in second:
            seen: set[tuple[int, int, int]] = set()
            open_ = [(stays, stays, arrives)]
            while open_:
                state = open_.pop()
                for one in automaton.next_of(state[0]).keys() & first:
                    for two in automaton.next_of(state[1]):
                        for three in automaton.next_of(state[2]).keys() & second:
                            automaton.step()
                            following = (one, two, three)
                            if following in seen or not automaton.takes[one] & automaton.takes[two] & automaton.takes[three]:
                                continue
                            if following == (stays, arrives, arrives):
                                return True
                            seen.add(following)
                            open_.append(following)
    return False
