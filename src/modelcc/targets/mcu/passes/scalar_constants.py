"""Replaces constants of one element by immediates: zero points and limits of activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.constant import Constant
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Cast, Item, Kernel, Number, Read, Scalar, TensorProgram, item_tensors


@dataclass(frozen=True)
class ScalarConstants:
    """Integers only: they become immediate operands.

    before::

        program @main(%x: i8[4]) -> (%y) {
          constant %zero: i8[] = "1d"
          kernel @Sub(%x: i8[4], %zero: i8[]) -> (%y: i16[4]) {
            %y: i16[4] = [i < 4] i16(%x[i]) - i16(%zero[])
          }
        }

    after::

        program @main(%x: i8[4]) -> (%y) {
          kernel @Sub(%x: i8[4]) -> (%y: i16[4]) {
            %y: i16[4] = [i < 4] i16(%x[i]) - -1:i16
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        known = program.constants
        items = (_known(i, known) if isinstance(i, Kernel) else i for i in program.items)
        return with_used_constants(replace(program, items=tuple[Item, ...](items)))


def with_used_constants(program: TensorProgram) -> TensorProgram:
    """``program`` without unused constants."""
    used = {*program.outputs, *(n for item in program.items for n in item_tensors(item))}
    constants = {n: c for n, c in program.constants.items() if n in used}
    return replace(program, constants=constants).with_items(program.items)


def _known(kernel: Kernel, constants: Mapping[str, Constant]) -> Kernel:
    def visit(node: Scalar) -> Scalar:
        match node:
            case Read(tensor=name, dtype=dtype) if dtype.is_integer and name in constants:
                constant = constants[name]
                if constant.type.elements == 1:
                    return Number(int(constant.data.reshape(())), dtype)
            case Cast(Number(value, source), dtype) if source.is_integer and dtype.is_integer:
                return Number(int(source_value(value, dtype.bits, dtype.kind == "int")), dtype)
            case _:
                pass
        return node

    stages = tuple(replace(s, body=transform(s.body, visit)) for s in kernel.stages)
    read = {r.tensor for s in stages for r in reads(s.body)}
    inputs = tuple(name for name in kernel.inputs if name in read)
    return replace(kernel, stages=stages, inputs=inputs)


def source_value(value: float, bits: int, signed: bool) -> int:
    """``value`` wrapped to the range of an integer type."""
    low = int(value) % (1 << bits)
    return low - (1 << bits) if signed and low >> (bits - 1) else low
