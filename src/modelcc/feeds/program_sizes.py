"""Sizes of the named dimensions of a placed program, for its reports."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.feeds.random import nominal_sizes
from modelcc.ir.program import Program, checks


def usual_sizes(program: Program, given: Mapping[str, int]) -> dict[str, int]:
    """Sizes for a report of a placed program: the ``given`` ones, moderate ones for others."""
    shapes = [program.types[name].shape for name in program.inputs]
    constraints = [check.condition for check in checks(program)]
    return nominal_sizes(program.dims, given, shapes, constraints)


def greatest_sizes(program: Program) -> dict[str, int]:
    """Upper bounds of the bounded dimensions."""
    return {name: known.hi for name, known in program.dims.items() if isinstance(known.hi, int)}
