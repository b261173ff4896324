"""How an op takes floats of 16 bits, where a user allows them: a facet that lowering reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["wide", "products", "follows", "elements"]


@dataclass(frozen=True)
class Narrowing:
    """What becomes of f32 operands and results.

    ``wide`` ops keep them: statistics, exponentials, sums.  ``products`` are added in f32, of
    operands that are rounded, but for those whose numbers are in ``kept``, which may be of either
    type.  What ``follows`` takes narrow operands as they are, moves them or rounds once.
    ``elements`` are computed in f32 and rounded where they are stored, if operands were.
    """

    kind: Kind
    kept: tuple[int, ...] = ()


WIDE = Narrowing("wide")
PRODUCTS = Narrowing("products")
FOLLOWS = Narrowing("follows")
ELEMENTS = Narrowing("elements")
