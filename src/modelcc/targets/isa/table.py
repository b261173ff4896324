"""The instructions that processors are known to have: those of the modules of this package."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from types import ModuleType

from modelcc.ir.loop import Expr, Function, Instruction, ScalarCall
from modelcc.targets import isa
from modelcc.targets.isa.templates import Encoding, RoutineRule, RoutineText


def _modules() -> Iterator[ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(isa.__path__)]
    for name in sorted({*names} - {"table", "templates"}):
        yield import_module(f"{isa.__name__}.{name}")


def _found() -> Iterator[Encoding]:
    for module in _modules():
        yield from getattr(module, "ENCODINGS", ())


def _routines() -> Iterator[RoutineText]:
    for module in _modules():
        yield from getattr(module, "ROUTINES", ())


def _rules() -> Iterator[RoutineRule]:
    for module in _modules():
        yield from getattr(module, "RULES", ())


ENCODINGS = tuple(sorted(_found(), key=lambda encoding: encoding.steps))
"""Those of fewer steps first: of several ways to compute the same, the first is taken."""

ROUTINES = tuple(_routines())
"""Whole routines that processors compute in their own way."""

_RULES = tuple(_rules())


def texts_of(routine: Function) -> tuple[RoutineText, ...]:
    """How processors compute a routine."""
    made = (rule(routine) for rule in _RULES)
    return (*(t for t in ROUTINES if t.routine == routine), *(t for t in made if t is not None))


def available(architecture: str, features: Collection[str]) -> tuple[Encoding, ...]:
    """What processors with these ``features`` ("+avx2") have."""
    there = frozenset(features)
    return tuple(e for e in ENCODINGS if e.architecture == architecture and there >= {*e.features})


def encodings_of(
    table: Iterable[Encoding], instruction: Instruction, lanes: int
) -> tuple[Encoding, ...]:
    """Ways to compute an instruction on that many lanes, the best first."""
    return tuple(e for e in table if e.lanes == lanes and e.instruction == instruction)


def lanes_of(table: Iterable[Encoding]) -> dict[Instruction, frozenset[int]]:
    """For how many lanes there is each instruction."""
    found: dict[Instruction, set[int]] = {}
    for e in table:
        found.setdefault(e.instruction, set()).add(e.lanes)
    return {instruction: frozenset(lanes) for instruction, lanes in found.items()}


def widest(table: Iterable[Encoding], function: str) -> int:
    """Lanes of the widest instruction for a scalar function, 0 if there is none."""
    return max((e.lanes for e in table if _is(e.instruction.meaning, function)), default=0)


def _is(meaning: Expr, function: str) -> bool:
    return isinstance(meaning, ScalarCall) and meaning.function == function
