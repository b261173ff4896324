"""An op's use of 16-bit floats, where a user allows them: a facet that lowering reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["wide", "products", "follows", "elements"]


@dataclass(frozen=True)
class Narrowing:
    """The treatment of f32 operands and results.

    ``wide`` ops keep f32: statistics, exponentials, sums.  ``products`` accumulate in f32, with
    rounded operands except for those at positions ``kept``, which may have either type.
    ``follows``: takes narrow operands as they are, moves them or rounds once.  ``elements`` are
    computed in f32 and rounded when stored, if operands were.
    """

    kind: Kind
    kept: tuple[int, ...] = ()


WIDE = Narrowing("wide")
PRODUCTS = Narrowing("products")
FOLLOWS = Narrowing("follows")
ELEMENTS = Narrowing("elements")
