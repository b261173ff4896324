"""Operand indices of LSTMs, and common parts of float and integer ones."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import TfliteCall
from modelcc.ir.index import Index
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.shape import Transpose
from modelcc.ops.views import part

GATES = "ifgo"
"""Input, forget, cell and output gate, in the order of their operands."""

INPUT, RECURRENT, PEEPHOLE, BIAS, NORM = 1, 5, 9, 12, 20
"""First operand of each group of gate parameters; the cell gate has no peephole."""

PROJECTION, PROJECTION_BIAS, OUTPUT_STATE, CELL_STATE = 16, 17, 18, 19

_PEEPHOLES = "ifo"


@dataclass(frozen=True)
class LstmOperands:
    """An LSTM under conversion; without an input gate it is 1 minus the forget gate (CIFG)."""

    call: TfliteCall

    @property
    def gates(self) -> str:
        """The gates with their own parameters."""
        return GATES if self.call.has(INPUT) else GATES[1:]

    @property
    def is_normalised(self) -> bool:
        """Whether gates have layer normalisation."""
        return self.call.has(NORM + 1)

    def peephole(self, gate: str) -> int | None:
        """The operand of a gate's peephole, if it has one."""
        place = PEEPHOLE + _PEEPHOLES.index(gate) if gate in _PEEPHOLES else None
        return place if place is not None and self.call.has(place) else None

    def operand(self, first: int, gate: str) -> int:
        """The operand of a gate in the group that starts at ``first``."""
        return first + GATES.index(gate)

    def check(self) -> None:
        """Rejects operands that do not form an LSTM."""
        call = self.call
        for gate in self.gates:
            for first in (INPUT, RECURRENT):
                place = self.operand(first, gate)
                if not call.has(place):
                    call.fail(f"operand {place}, weights of a gate, is missing")
                if call.rank(place) != 2:
                    unsupported("recurrent weights that are a diagonal")
        if call.rank() != 3:
            call.fail(f"its operand is {call.type()}, not a sequence")

    def steps(self) -> Value:
        """The sequence, time-major."""
        x = self.call.value(0)
        return x if self.call.flag("time_major") else of(Transpose((1, 0, 2)), x)

    def sequence(self, steps: Value) -> str:
        """A sequence in the operand's layout, time- or batch-major."""
        turned = steps if self.call.flag("time_major") else of(Transpose((1, 0, 2)), steps)
        return turned.name

    def parts(self, gates: Value, cells: Index) -> dict[str, Value]:
        """The gates' columns of ``[…, gates * cells]``."""
        last = gates.type.rank - 1
        return {gate: part(gates, last, n * cells, cells) for n, gate in enumerate(self.gates)}
