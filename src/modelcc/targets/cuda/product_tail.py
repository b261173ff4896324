"""What follows a product in a kernel, as cuBLASLt's epilogues compute it: a bias, and relu.

Between them values are rounded to the model's type by kernels of ours, and not by the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym
from modelcc.ir.tensor import Apply, Cast, Number, Read, Scalar, Stage
from modelcc.ir.types import F32
from modelcc.schedule.canonical import CanonicalKernel


@dataclass(frozen=True)
class Tail:
    """Adds the vector ``bias`` to every row (empty: none), then takes the ``relu``."""

    bias: str = ""
    relu: bool = False


def product_and_tail(kernel: CanonicalKernel) -> tuple[CanonicalKernel, Tail] | None:
    """``kernel`` as its product alone, with a result of the operands' elements, and what follows;
    None if that is more than a tail."""
    first, *rest = kernel.stages
    types = dict(kernel.types)
    if len(kernel.outputs) != 1 or not isinstance(first.body, Apply):
        return None
    (output,) = kernel.outputs
    found: dict[str, Tail] = {first.output: Tail()}
    for stage in rest:
        tail = _StageTail(stage, found, kernel).of(stage.body)
        if tail is None or not _is_plain(stage, types[output].shape):
            return None
        found[stage.output] = tail
    if output not in found or (rest and rest[-1].output != output):
        return None
    body = replace(first.body, args=tuple(map(_uncast, first.body.args)))
    alike = types | {output: replace(types[output], dtype=body.args[0].dtype)}
    stages = (replace(first, output=output, body=body),)
    return replace(kernel, stages=stages, types=tuple(alike.items())), found[output]


def _uncast(factor: Scalar) -> Scalar:
    return factor.value if isinstance(factor, Cast) and factor.dtype == F32 else factor


def _is_plain(stage: Stage, shape: tuple[Index, ...]) -> bool:
    """Whether it computes each element of a tensor of ``shape`` from the same one of others."""
    extents = {Sym(axis.name): axis.extent for axis in stage.axes}
    written = tuple(extents.get(index) for index in stage.write if isinstance(index, Sym))
    return not stage.reduce and written == shape and len(stage.write) == len(extents)


@dataclass(frozen=True)
class _StageTail:
    stage: Stage
    before: Mapping[str, Tail]
    kernel: CanonicalKernel

    def of(self, body: Scalar) -> Tail | None:
        """The tail that ends with ``body``."""
        match body:
            case Read(tensor, indices):
                return self.before.get(tensor) if indices == self.stage.write else None
            case Cast(value):
                return self.of(value)
            case Apply("max", (value, Number(number))) if number == 0:
                found = self.of(value)
                return None if found is None else replace(found, relu=True)
            case Apply("add", (left, right)):
                for value, other in ((left, right), (right, left)):
                    found, bias = self.of(value), self._bias(other)
                    if found == Tail() and bias:
                        return Tail(bias)
                return None
            case _:
                return None

    def _bias(self, value: Scalar) -> str:
        """The input that is a vector along the last axis."""
        value = value.value if isinstance(value, Cast) else value
        if not isinstance(value, Read) or value.tensor not in self.kernel.inputs:
            return ""
        type_ = dict(self.kernel.types)[value.tensor]
        if not value.indices or not self.stage.write or type_.layout is not None:
            return ""
        *others, last = value.indices
        vector = last == self.stage.write[-1] and type_.shape[-1] == self._shape[-1]
        return value.tensor if vector and all(index == 0 for index in others) else ""

    @property
    def _shape(self) -> tuple[Index, ...]:
        """The result's."""
        return dict(self.kernel.types)[self.kernel.outputs[0]].shape
