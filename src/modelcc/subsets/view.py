"""An operator of a TFLite file with its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.frontends.tflite.module import TfliteOperator, TfliteSubgraph, TfliteTensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class OperatorView:
    """An operator, and the tensors that it reads (None: absent) and writes."""

    operator: TfliteOperator
    inputs: tuple[TfliteTensor | None, ...]
    outputs: tuple[TfliteTensor, ...]

    @property
    def name(self) -> str:
        """Its name in the schema, such as CONV_2D."""
        return self.operator.name

    @property
    def tensors(self) -> tuple[TfliteTensor, ...]:
        """All present tensors."""
        return (*(t for t in self.inputs if t is not None), *self.outputs)

    @property
    def data(self) -> TfliteTensor | None:
        """The data tensor: the first operand, or if that is a shape or axis (TRANSPOSE_CONV,
        SPLIT), the one after it."""
        place = {"TRANSPOSE_CONV": 2, "SPLIT": 1}.get(self.name, 0)
        return self.input(place)

    def input(self, place: int) -> TfliteTensor | None:
        """The operand at ``place``; None if it is absent."""
        return self.inputs[place] if place < len(self.inputs) else None

    def number(self, option: str, default: int = 0) -> int:
        """A numeric option."""
        value = self.operator.options.get(option, default)
        return int(value) if isinstance(value, int | float) else default

    def text(self, option: str, default: str = "NONE") -> str:
        """An enumeration option: a padding, an activation."""
        return str(self.operator.options.get(option, default))

    def constant(self, place: int) -> tuple[int, ...] | None:
        """The numbers of a constant operand, flattened; None if it is not constant."""
        tensor = self.input(place)
        if tensor is None or tensor.data is None:
            return None
        return tuple(int(x) for x in tensor.data.reshape(-1))


def view_of(operator: TfliteOperator, subgraph: TfliteSubgraph) -> OperatorView:
    """``operator`` with its tensors."""
    inputs = tuple(None if i < 0 else subgraph.tensors[i] for i in operator.inputs)
    return OperatorView(operator, inputs, tuple(subgraph.tensors[i] for i in operator.outputs))


def shape_of(tensor: TfliteTensor | None) -> Shape:
    """The extents, 1 for a dynamic leading one, empty if unknown."""
    if tensor is None or tensor.shape is None:
        return ()
    return tuple(1 if n == 0 and size == -1 else size for n, size in enumerate(tensor.shape))


def extended(shape: Shape, rank: int = 4) -> Shape:
    """``shape`` with leading ones, so that it has at least ``rank`` axes."""
    return (1,) * (rank - len(shape)) + shape


def axes_of(numbers: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Axes as nonnegative ones."""
    return tuple(sorted({axis % max(1, rank) for axis in numbers or ()}))
