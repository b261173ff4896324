"""One TFLite operator under conversion, as its handler receives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from modelcc.frontends.kit.body import Body, BodyInputs
from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.kept import Variables
from modelcc.frontends.tflite.module import TfliteOperator, TfliteQuantization, TfliteTensor
from modelcc.ir.index import Bounds
from modelcc.ir.types import F16, F32, I8, I16, U8, DType, TensorType
from modelcc.ops.arithmetic import Value
from modelcc.ops.quant import limits

QUANTIZED = (I8, U8, I16)
"""Types whose numbers represent reals by their tensor's quantization."""


class InlineSubgraph(Protocol):
    """Converts a subgraph inline, with values for its inputs; returns its results.

    One that is run ``once`` initialises variables before the first call.
    """

    def __call__(
        self, number: int, operands: Sequence[str], once: bool = False
    ) -> tuple[str, ...]: ...


class SubgraphBody(Protocol):
    """Converts a subgraph into its own graph, the body of a branch or a loop.

    If ``following`` is given, it is run on the results; its own results come before these.
    """

    def __call__(
        self, number: int, bounds: Bounds, inputs: BodyInputs, following: int | None = None
    ) -> Body: ...


@dataclass(frozen=True)
class TfliteCall(Conversion):
    """What handlers receive: the operator with its options, and the file's declarations of its
    tensors.

    ``operands`` and ``results`` are tensors; an absent operand is None.  ``once``: the operator is
    run before the first call only.
    """

    op: TfliteOperator
    operands: tuple[TfliteTensor | None, ...]
    results: tuple[TfliteTensor, ...]
    intermediates: tuple[TfliteTensor | None, ...]
    states: Variables
    once: bool
    inline: InlineSubgraph
    body: SubgraphBody

    def flag(self, name: str) -> bool:
        """A boolean option."""
        return bool(self.op.options.get(name, False))

    def integer(self, name: str, default: int = 0) -> int:
        """An integer option."""
        found = self.op.options.get(name, default)
        return found if isinstance(found, int) else default

    def number(self, name: str, default: float = 0.0) -> float:
        """A floating-point option."""
        found = self.op.options.get(name, default)
        return float(found) if isinstance(found, int | float) else default

    def word(self, name: str, default: str = "") -> str:
        """An option that is a string or an enumeration's name."""
        found = self.op.options.get(name, default)
        return found if isinstance(found, str) else default

    def tuple(self, name: str) -> tuple[int, ...] | None:
        """An option that is a list of integers; None if absent."""
        found = self.op.options.get(name)
        if not isinstance(found, tuple):
            return None
        return tuple(int(number) for number in found)

    @property
    def result_dtype(self) -> DType:
        """The dtype of the first result."""
        found = self.results[0].dtype
        if found is None:
            unsupported(f"its result is of {self.results[0].type}")
        return found

    @property
    def is_quantized(self) -> bool:
        """Whether its result is quantized."""
        return self.result_dtype in QUANTIZED and self.results[0].quantization is not None

    def quantization(self, i: int) -> TfliteQuantization:
        """The quantization parameters of operand ``i``."""
        tensor = self.operands[i] if i < len(self.operands) else None
        found = None if tensor is None else tensor.quantization
        if found is None:
            self.fail(f"operand {i} ({self.labels[i]!r}) has no quantization parameters")
        return found

    def single(self, i: int) -> TfliteQuantization:
        """The quantization parameters of operand ``i``, per tensor."""
        return self._checked(self.quantization(i), self.labels[i], self.dtype(i))

    def result(self, i: int = 0) -> TfliteQuantization:
        """The quantization parameters of result ``i``, per tensor."""
        tensor = self.results[i]
        if tensor.quantization is None or tensor.dtype is None:
            self.fail(f"result {tensor.name!r} has no quantization parameters")
        return self._checked(tensor.quantization, tensor.name, tensor.dtype)

    def _checked(self, found: TfliteQuantization, name: str, dtype: DType) -> TfliteQuantization:
        if not found.per_tensor:
            self.fail(f"{name!r} has {found.scales.size} scales where there must be one")
        if found.scale <= 0:
            self.fail(f"{name!r} has the scale {found.scale}")
        low, high = limits(dtype)
        if not low <= found.zero <= high:
            self.fail(f"{name!r}, {dtype}, has zero point {found.zero}")
        return found

    def variable(self, i: int) -> Value:
        """The current value of operand ``i``, a variable tensor; initially its zero point."""
        tensor = self.operands[i] if i < len(self.operands) else None
        if tensor is None or not tensor.variable or tensor.dtype is None or not tensor.shape:
            self.fail(f"operand {i} must be a variable tensor of known shape")
        name, type = self._state_name(i), TensorType(tensor.shape, tensor.dtype)
        zero = 0 if tensor.quantization is None else tensor.quantization.zero
        if zero and tensor.dtype == I8 and name not in self.states.initial:
            self.states.begin(name, np.full(tensor.shape, zero, np.int8))
        return Value(self, self.states.read(name, type, self.emitter))

    def keep(self, i: int, value: Value) -> None:
        """Updates operand ``i``, a variable tensor, with a new value."""
        self.states.write(self._state_name(i), value.name, self.emitter)

    def _state_name(self, i: int) -> str:
        return self.labels[i] or f"state{self.op.inputs[i]}"

    def as_value(self, name: str) -> Value:
        """A value by name, with overloaded arithmetic."""
        return Value(self, name)

    def require_float(self, i: int = 0) -> None:
        """Not supported unless operand ``i`` is a float."""
        if self.dtype(i) not in (F32, F16):
            unsupported(f"it is of {self.dtype(i)}")


SingleResult = Callable[[TfliteCall], str]
Handler = Callable[[TfliteCall], "str | Sequence[str]"]
Handlers = Mapping[str, Handler]
