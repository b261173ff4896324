"""Different optimisers for different parameters, chosen by their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from modelcc.ir.errors import ModelError
from modelcc.optim.optimizer import Optimizer, State, Tensors
from modelcc.tensor.tensor import Tensor


@dataclass(frozen=True)
class Groups:
    """Each parameter by the optimiser of the first pattern that its path matches.

    >>> from modelcc.optim import AdamW
    >>> rule = Groups({"*bias": AdamW(weight_decay=0.0), "head.*": AdamW(1e-2), "*": AdamW()})

    ``*`` matches any text, ``?`` a character, as in names of files.  None in place of an optimiser
    freezes the parameters.  :class:`ModelError` for a parameter that no pattern matches, and a
    pattern that matches none.
    """

    rules: Mapping[str, Optimizer | None]

    def init(self, params: Tensors) -> State:
        """States of the groups by their numbers."""
        found = self.chosen(params)
        unused = [pattern for pattern in self.rules if pattern not in found.values()]
        if unused:
            raise ModelError(f"no parameter is in the group {unused[0]!r}", ("Groups",),
                             f"parameters: {', '.join(params)}")  # fmt: skip
        return {
            number: rule.init(_of(params, found, pattern))
            for number, pattern, rule in self._active()
        }

    def update(
        self, grads: Tensors, state: State, params: Tensors
    ) -> tuple[dict[str, Tensor], State]:
        """Parameters and states after one update."""
        found = self.chosen(params)
        made, states = dict(params), State()
        for number, pattern, rule in self._active():
            mine, given = _of(params, found, pattern), _of(grads, found, pattern)
            changed, states[number] = rule.update(given, state[number], mine)
            made |= changed
        return made, states

    def chosen(self, params: Tensors) -> dict[str, str]:
        """The pattern that each path matches."""
        found = {
            path: next((p for p in self.rules if fnmatchcase(path, p)), None) for path in params
        }
        lost = [path for path, pattern in found.items() if pattern is None]
        if lost:
            raise ModelError(f"parameter {lost[0]!r} is in no group", ("Groups",),
                             'add a group "*"; None as its optimiser freezes it')  # fmt: skip
        return {path: pattern for path, pattern in found.items() if pattern is not None}

    def _active(self) -> list[tuple[str, str, Optimizer]]:
        rules = enumerate(self.rules.items())
        return [(str(n), pattern, rule) for n, (pattern, rule) in rules if rule is not None]


def _of(tensors: Tensors, found: Mapping[str, str], pattern: str) -> dict[str, Tensor]:
    return {path: x for path, x in tensors.items() if found.get(path) == pattern}
