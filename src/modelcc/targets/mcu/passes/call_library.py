"""Replaces kernels that a vendor's library computes by calls to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.constant import Constant
from modelcc.ir.library import ExternalCall, LibraryFunction, meaning_of
from modelcc.ir.loop import Buffer, Function, Parameter
from modelcc.ir.naming import Names
from modelcc.ir.tensor import Algorithm, Item, Kernel, TensorProgram, item_inputs
from modelcc.ir.types import I8, TensorType
from modelcc.passes.tensor.added_constants import AddedConstants
from modelcc.schedule.canonical import canonical
from modelcc.schedule.schedule import Parts, Tiled
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.mcu.libraries.cmsis_nn import SCRATCH, CmsisNN
from modelcc.targets.mcu.libraries.matching import Matched, match_stage, match_sum
from modelcc.targets.mcu.passes.scalar_constants import with_used_constants

Gains: TypeAlias = Callable[[ExternalCall, TensorProgram], bool]
"""Whether a call takes less time than the kernels of a program."""

_WITH_DSP = CmsisNN(dsp=True, mve=False)
_PLAIN = CpuModel(vector_bits=1, vector_registers=8, fused=False)


@dataclass(frozen=True)
class CallLibrary:
    """Calls ``library`` for kernels that it computes bit-exactly, if the call ``gains`` on them
    (None: always); its semantics are loops for ``plain`` processors.

    before::

        program @main(%x: i8[1, 4, 4, 2]) -> (%y) {
          kernel @MaxPool(%x: i8[1, 4, 4, 2]) -> (%y: i8[1, 2, 2, 2]) {
            %y: i8[1, 2, 2, 2] = [n < 1, p < 2, q < 2, c < 2] max[a < 2, b < 2] %x[n, 2*p + a, 2*q + b, c]
          }
        }

    after::

        program @main(%x: i8[1, 4, 4, 2]) -> (%y) {
          algorithm (%x: i8[1, 4, 4, 2]) -> (%y: i8[1, 2, 2, 2]) {
            library "cmsis-nn" of "arm_nnfunctions.h" calls arm_max_pool_s8(cmsis_nn_context{null, i32(0)}, cmsis_nn_pool_params{cmsis_nn_tile{i32(2), i32(2)}, cmsis_nn_tile{i32(0), i32(0)}, cmsis_nn_activation{i32(-128), i32(127)}}, cmsis_nn_dims{i32(1), i32(4), i32(4), i32(2)}, %x0[0], cmsis_nn_dims{i32(1), i32(2), i32(2), i32(1)}, cmsis_nn_dims{i32(1), i32(2), i32(2), i32(2)}, %y0[0])
            func @cmsis_nn_max_pool_s8(%x0: i8[32], %y0: mut i8[8]) {
              for a10 in 0 .. 2 {
                for a20 in 0 .. 2 {
                  for a30 in 0 .. 2 {
                    register %acc0 = i8(-128)
                    for a40 in 0 .. 2 {
                      for a50 in 0 .. 2 {
                        let %x0_0 = load %x0[16*a10 + 4*a20 + a30 + 8*a40 + 2*a50]
                        %acc0 = max(%acc0, %x0_0)
                      }
                    }
                    store %y0[4*a10 + 2*a20 + a30] = %acc0
                  }
                }
              }
            }
          }
        }
    """  # noqa: E501

    library: CmsisNN = _WITH_DSP
    plain: CpuModel = _PLAIN
    gains: Gains | None = None

    def __call__(self, program: TensorProgram) -> TensorProgram:
        made = _Made(program, self)
        changed = made.added.with_items(made.items())
        return with_used_constants(replace(changed, types={**changed.types, **made.scratch}))


class _Made:
    """Calls that replace kernels, and their additional constants and memory."""

    def __init__(self, program: TensorProgram, how: CallLibrary) -> None:
        self._program = program
        self._library = how.library
        self._how = how
        self._names = Names(program.types)
        self.added = AddedConstants(program)
        self.scratch: dict[str, TensorType] = {}

    def items(self) -> tuple[Item, ...]:
        """The program's items; a sum is matched together with its requantization."""
        program = self._program
        readers = Counter(n for item in program.items for n in set(item_inputs(item)))
        readers.update(program.outputs)
        sums: dict[str, int] = {}
        items: dict[int, Item] = {}
        for position, item in enumerate(program.items):
            items[position] = item
            if not isinstance(item, Kernel) or len(item.stages) != 1:
                continue
            before = next((sums[n] for n in item.inputs if n in sums and readers[n] == 1), None)
            kernels = (item,) if before is None else (items[before], item)
            call = self._called([k for k in kernels if isinstance(k, Kernel)])
            if call is not None:
                items[position] = call
                if before is not None:
                    del items[before]
            elif item.stages[0].combine == "sum":
                sums[item.outputs[0]] = position
        return tuple(items.values())

    def _called(self, kernels: Sequence[Kernel]) -> Algorithm | None:
        """The call that computes the last of ``kernels``, the first being a separate sum."""
        program, last = self._program, kernels[-1].stages[0]
        if len(kernels) == 1:
            found = match_stage(last, program.types, self._library)
        else:
            first = kernels[0].stages[0]
            found = match_sum(first, last, program.types, program.constants, self._library)
        if found is None:
            return None
        gains = self._how.gains
        if gains is not None and not gains(found.call.call, _alone(kernels, program)):
            return None
        return self._call(kernels, found)

    def _call(self, kernels: Sequence[Kernel], found: Matched) -> Algorithm:
        item = kernels[-1]
        own = {name: self.added.add(data, name) for name, data in found.constants.items()}
        types = {n: Constant(data).type for n, data in found.constants.items()}
        kernel = Kernel("Call", found.inputs, item.outputs, found.stages)
        exact, _ = canonical(kernel, {**self._program.types, **types}, frozenset(types), {})
        plain = schedule_kernel(
            exact, _name(found.call.call), self._how.plain, (), Parts((Tiled(),))
        )
        function = _with_memory(meaning_of(plain.function), found)
        inputs = tuple(own.get(name, name) for name in found.inputs)
        outputs = [*item.outputs]
        if found.call.scratch:
            outputs.append(self._names.fresh(f"{outputs[0]}.{SCRATCH}"))
            self.scratch[outputs[-1]] = TensorType((found.call.scratch,), I8)
        call = LibraryFunction(found.call.call, function)
        source = dict.fromkeys(s for k in kernels for s in k.source)
        return Algorithm(call, inputs, tuple(outputs), (), tuple(source))


def _name(call: ExternalCall) -> str:
    """The name of the function around a call, distinct from the library's own."""
    return f"{call.library.replace('-', '_')}_{call.symbol.removeprefix('arm_')}"


def _with_memory(function: Function, found: Matched) -> Function:
    """``function`` with scratch memory as a parameter, and a result that may alias operands."""
    parameters = [replace(p, shared=found.in_place) for p in function.parameters]
    if found.call.scratch:
        parameters.append(Parameter(Buffer(SCRATCH, I8, found.call.scratch), mutable=True))
    return replace(function, parameters=tuple(parameters))


def _alone(kernels: Sequence[Kernel], program: TensorProgram) -> TensorProgram:
    """A program of ``kernels`` alone."""
    made = {name for k in kernels for name in k.outputs}
    read = dict.fromkeys(name for k in kernels for name in k.inputs if name not in made)
    constants = {name: c for name, c in program.constants.items() if name in read}
    inputs = tuple(name for name in read if name not in constants)
    types = {name: program.types[name] for name in (*read, *made)}
    return TensorProgram(
        program.name, inputs, kernels[-1].outputs, tuple(kernels), types, constants
    )
