"""Gradients of updates that are put into a tensor, or combined with what is there."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import product
from modelcc.ir.op import Builder, Op, Values
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.comparison import Equal, Where, where
from modelcc.ops.generate import Full, Iota, filled
from modelcc.ops.runtime_index import Combination


@dataclass(frozen=True)
class Scattering:
    """``put`` combines updates with x by ``reduction``, ``add`` adds them, ``get`` reads there."""

    reduction: Combination
    put: Op
    add: Op
    get: Op

    def gradients(
        self, build: Builder, dy: str, operands: Values, result: str
    ) -> tuple[str, None, str]:
        """Those of ``operands``: x, indices and updates."""
        x, indices, updates = operands
        match self.reduction:
            case "none":
                dx, du = self._replaced(build, dy, indices, updates)
            case "add":
                dx, du = dy, build.emit(self.get, dy, indices)
            case "mul":
                dx, du = self._product(build, dy, x, indices, updates)
            case "max" | "min":
                dx, du = self._extreme(build, dy, x, indices, updates, result)
        return dx, None, du

    def _replaced(self, build: Builder, dy: str, indices: str, updates: str) -> tuple[str, str]:
        """An update that a later one covers has none: each puts its number, and reads whose is
        there."""
        type, x = build.type_of(updates), build.type_of(dy)
        none = filled(build, updates)
        dx = build.emit(self.put, dy, indices, none)
        numbers = build.emit(Reshape(type.shape), build.emit(Iota((product(type.shape),))))
        last = build.emit(self.put, build.emit(Full(x.shape, -1, I64)), indices, numbers)
        stays = build.emit(Equal(), build.emit(self.get, last, indices), numbers)
        return dx, build.emit(Where(), stays, build.emit(self.get, dy, indices), none)

    def _product(
        self, build: Builder, dy: str, x: str, indices: str, updates: str
    ) -> tuple[str, str]:
        """That of all other factors.  A factor of 0 has it where it is the only one of its place,
        so zeros are counted apart."""
        applied = build.emit(self.put, filled(build, x, 1.0), indices, updates)
        dx = Value(build, dy) * Value(build, applied)
        update = Value(build, updates)
        is_zero = of(Equal(), update, update.lift(0.0))
        factors, one_each = where(is_zero, 1.0, update), where(is_zero, update.lift(1.0), 0.0)
        zeros = build.emit(self.add, filled(build, x), indices, one_each.name)
        rest = build.emit(self.put, x, indices, factors.name)
        count, others, slope = (
            Value(build, build.emit(self.get, name, indices)) for name in (zeros, rest, dy)
        )
        alone, none = (of(Equal(), count, count.lift(n)) for n in (1.0, 0.0))
        missing = where(is_zero, where(alone, others, 0.0), where(none, others / factors, 0.0))
        return dx.name, (slope * missing).name

    def _extreme(
        self, build: Builder, dy: str, x: str, indices: str, updates: str, result: str
    ) -> tuple[str, str]:
        """To what stays; ties share evenly."""
        value, extreme, update = (Value(build, name) for name in (x, result, updates))
        here = Value(build, build.emit(self.get, result, indices))
        kept = where(of(Equal(), value, extreme), value.lift(1.0), 0.0)
        taken = where(of(Equal(), update, here), update.lift(1.0), 0.0)
        ties = Value(build, build.emit(self.add, kept.name, indices, taken.name))
        share = Value(build, dy) / ties
        theirs = Value(build, build.emit(self.get, share.name, indices))
        return (kept * share).name, (taken * theirs).name
