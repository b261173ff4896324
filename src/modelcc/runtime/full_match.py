"""Full matching of strings against a regular expression, in time linear in their lengths.

All alternatives are simulated at once (Thompson, "Regular expression search algorithm", 1968), and
the resulting states are cached as a DFA, so that a character usually costs one table lookup.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

Instruction = Sequence[str | int]
"""``("one", s)`` consumes a character of set ``s``, ``("where", c)`` continues if condition ``c``
holds here; ``("fork", d, …)`` continues at each of these relative offsets.  The end of the program
is a match."""

EDGE, NEWLINE, WORD, OTHER = range(4)
"""What may be adjacent to a position: the edge, or a character of one of these kinds."""

CONDITIONS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {
        "start of text": lambda before, _: before == EDGE,
        "end of text": lambda _, after: after == EDGE,
        "start of line": lambda before, _: before in (EDGE, NEWLINE),
        "end of line": lambda _, after: after in (EDGE, NEWLINE),
        "edge of word": lambda before, after: (before == WORD) != (after == WORD),
        "no edge of word": lambda before, after: (before == WORD) == (after == WORD),
    }
)

MOST_PLACES = 1_000_000
"""Maximum number of cached states: some 100 MB."""


@dataclass(frozen=True)
class Automaton:
    """The compiled regular expression.

    Characters from ``bounds[i]`` up to the next bound belong to class ``classes[i]``; a set
    consists of classes, and all characters of a class are of one of ``kinds``.
    """

    program: Sequence[Instruction]
    sets: Sequence[Sequence[int]]
    bounds: Sequence[int]
    classes: Sequence[int]
    kinds: Sequence[int]


@dataclass(eq=False)
class _State:
    """Program positions before a character, the preceding character's kind, and transitions."""

    places: frozenset[int]
    before: int
    reached: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    following: dict[int, _State] = field(default_factory=dict[int, "_State"])


class Matcher:
    """Matches strings, caching up to ``most`` states; not thread-safe."""

    def __init__(self, machine: Automaton, most: int = MOST_PLACES) -> None:
        self._machine = machine
        self._most = most
        self._sets = [frozenset(members) for members in machine.sets]
        self._classes: dict[str, int] = {}
        self._states: dict[tuple[frozenset[int], int], _State] = {}
        self._size = 0

    def matches(self, text: str) -> bool:
        """Whether all of ``text`` matches."""
        conditional = any(kind != OTHER for kind in self._machine.kinds)
        state = self._state(frozenset([0]), EDGE if conditional else OTHER)
        for character in text:
            class_ = self._classes.get(character)
            if class_ is None:
                class_ = self._classes[character] = self._class_of(character)
            state = state.following.get(class_) or self._follow(state, class_)
            if not state.places:
                return False
        return len(self._machine.program) in self._reached(state, EDGE)

    def _class_of(self, character: str) -> int:
        return self._machine.classes[bisect_right(self._machine.bounds, ord(character)) - 1]

    def _state(self, places: frozenset[int], before: int) -> _State:
        found = self._states.get((places, before))
        if found is None:
            self._size += len(places) + 1
            if self._size > self._most:
                self._states.clear()
                self._size = len(places) + 1
            found = self._states[places, before] = _State(places, before)
        return found

    def _follow(self, state: _State, class_: int) -> _State:
        program, kind = self._machine.program, self._machine.kinds[class_]
        reached = self._reached(state, kind)
        places = (p for p in reached if p < len(program))
        after = frozenset(p + 1 for p in places if class_ in self._sets[int(program[p][1])])
        state.following[class_] = found = self._state(after, kind)
        return found

    def _reached(self, state: _State, after: int) -> frozenset[int]:
        """Program positions that consume a character, or match, reachable from ``state`` without
        consuming one (epsilon closure)."""
        if after not in state.reached:
            found = self._closure(state.places, state.before, after)
            self._size += len(found)
            state.reached[after] = found
        return state.reached[after]

    def _closure(self, places: Iterable[int], before: int, after: int) -> frozenset[int]:
        program = self._machine.program
        waiting, seen, found = list(places), set(places), list[int]()
        while waiting:
            place = waiting.pop()
            kind, *arguments = program[place] if place < len(program) else ("one",)
            if kind == "one":
                found.append(place)
                continue
            if kind == "where":
                holds = CONDITIONS[str(arguments[0])](before, after)
                targets = [place + 1] if holds else []
            else:
                targets = [place + int(distance) for distance in arguments]
            waiting += [target for target in targets if target not in seen]
            seen.update(targets)
        return frozenset(found)
