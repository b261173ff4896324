"""Checks of the memory locations of a program's tensors."""

from __future__ import annotations

from collections.abc import Sequence, Set

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, symbols
from modelcc.ir.program import Binding, Placement, Program
from modelcc.ir.program_contents import Values, require_inside


def require_symbols(index: Index, known: Set[str], where: tuple[str, ...]) -> None:
    """:class:`ModelError` if an index mentions a symbol that is not ``known``."""
    if not symbols(index) <= known:
        raise ModelError(f"index symbol '{min(symbols(index) - known)}' is not defined", where)


def verify_placement(
    program: Program,
    placement: Placement,
    samples: Sequence[Values],
    inner: frozenset[str],
    known: frozenset[str],
) -> None:
    """:class:`ModelError` unless every tensor has a location valid for its kind, in the arena at
    multiples of its alignment.

    ``samples`` are values of the symbols known before the program runs, ``inner`` the other symbols
    and ``known`` all of them.
    """
    dynamic = frozenset(program.read_sizes)
    for index in (placement.arena, *(d.value for d in placement.definitions)):
        if symbols(index) & dynamic:
            raise ModelError(f"{index} is needed before sizes are read", (program.name,))
    for name, binding in placement.bindings.items():
        where = (program.name, name)
        require_symbols(binding.offset, known, where)
        if name not in program.types:
            raise ModelError("there is no tensor of this name", where)
        if name in program.states:
            if binding.place != "input":
                raise ModelError("the state is not in the place of its input", where)
        elif binding.place != "arena":
            if name not in program.named(binding.place):
                raise ModelError(f"the program has no {binding.place} of this name", where)
        else:
            _verify_in_arena(program, placement, name, binding, samples, inner)
    for name in program.types:
        if name not in placement.bindings:
            raise ModelError(f"tensor '{name}' has no binding", (program.name,))


def _verify_in_arena(
    program: Program,
    placement: Placement,
    name: str,
    binding: Binding,
    samples: Sequence[Values],
    inner: frozenset[str],
) -> None:
    if binding.segment:
        if binding.segment not in program.allocated:
            where = (program.name, name)
            raise ModelError(f"segment '{binding.segment}' is never allocated", where)
        return
    indices = (*program.types[name].shape, binding.offset)
    if inner.isdisjoint(n for index in indices for n in symbols(index)):
        for values in samples:
            require_inside(program, placement, name, values)
