"""Networks with simulated 8-bit layers, and conversion to actual ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.nn.branch import TensorBranch, branches, joined
from modelcc.nn.convolution import Conv1d, Conv2d, Conv3d
from modelcc.nn.functional.values import of
from modelcc.nn.linear import Linear
from modelcc.nn.module import Module
from modelcc.nn.quantization.fake import FakeQuantize
from modelcc.nn.roles import Buffer
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

LAYERS = (Linear, Conv1d, Conv2d, Conv3d)
"""Layers that integer products can compute."""


class SimulatedLayer(Module):
    """A layer with fake-quantised operand and weights."""

    def __init__(self, layer: Module, weight: FakeQuantize, operand: FakeQuantize) -> None:
        """``weight`` and ``operand`` fake-quantise them."""
        self.layer, self.weight, self.operand = layer, weight, operand

    def forward(self, x: Any) -> Tensor:
        x = self.operand(x)
        return _with_weight(self.layer, self.weight(_weight(self.layer)))(x)


class ByteLayer(Module):
    """A layer with an 8-bit weight, which quantises its operand."""

    bytes: Tensor
    weight_scale: Tensor
    scale: Tensor
    zero_point: Tensor

    def __init__(self, simulated: SimulatedLayer) -> None:
        """The layer converted from its simulation."""
        weight, operand = simulated.weight, simulated.operand
        scale = np.abs(weight.scale.numpy())
        values = _weight(simulated.layer)
        quantised = of(QuantizeLinear(weight.to, 0), values, Tensor(scale), weight.zero_point)
        self.bytes = Buffer(quantised.numpy())
        self.weight_scale = Buffer(scale)
        self.scale = Buffer(np.abs(operand.scale.numpy()))
        self.zero_point = Buffer(operand.zero_point.numpy())
        self.layer = _with_weight(simulated.layer, Tensor(np.float32(0)))

    def forward(self, x: Any) -> Tensor:
        q = of(QuantizeLinear(self.zero_point.dtype, 0), x, self.scale, self.zero_point)
        x = of(DequantizeLinear(0), q, self.scale, self.zero_point)
        weight = of(DequantizeLinear(0), self.bytes, self.weight_scale)
        return _with_weight(self.layer, weight)(x)


def _weight(layer: Module) -> Tensor:
    return cast("Tensor", layer.tree_parts()["weight"])


def _with_weight(layer: Module, weight: Tensor) -> Module:
    return layer.with_tree_parts({**layer.tree_parts(), "weight": weight})


def prepared(
    module: Module,
    select: Callable[[str], bool] | None = None,
    *,
    learned: bool = False,
    averaging: float = 0.01,
) -> Module:
    """A copy whose linear layers and convolutions (those whose paths ``select`` accepts) simulate
    8-bit arithmetic: weights i8 with a scale per output, operands u8.

    Train it on, or pass examples to :func:`calibrated`; then :func:`converted` quantises it.
    """

    def simulated(path: str, layer: Any) -> Any:
        if not isinstance(layer, LAYERS) or (select is not None and not select(path)):
            return None
        outputs = int(_weight(layer).shape[0])
        weight = FakeQuantize("i8", 0, outputs, averaging=1.0, learned=learned)
        operand = FakeQuantize("u8", averaging=averaging, learned=learned)
        return SimulatedLayer(layer, weight, operand)

    return _required(module, _replaced(module, "", simulated), "linear layers or convolutions")


def calibrated(module: Module, examples: Iterable[Any]) -> Module:
    """A copy with ranges observed on ``examples``: batches, or tuples of arguments."""
    copy = cast("Module", _replaced(module, "", lambda path, part: None))
    fakes = [part for _, part in branches(copy) if isinstance(part, FakeQuantize)]
    before = [fake.observing for fake in fakes]
    was = module.training
    copy.train()
    for fake in fakes:
        fake.observing = True
    for example in examples:
        copy(*(cast("tuple[Any, ...]", example) if isinstance(example, tuple) else (example,)))
    for fake, observing in zip(fakes, before, strict=True):
        fake.observing = observing
    return copy.train(was)


def converted(module: Module) -> Module:
    """A copy for inference, whose simulated layers are quantised: compiled, they run on integer
    kernels."""

    def with_bytes(path: str, part: Any) -> Any:
        return ByteLayer(part) if isinstance(part, SimulatedLayer) else None

    found = _replaced(module, "", with_bytes)
    return _required(module, found, "layers that simulate bytes").eval()


def _required(module: Module, made: Any, what: str) -> Module:
    kinds = [type(part) for _, part in branches(made)]
    if kinds == [type(part) for _, part in branches(module)]:
        raise ModelError(f"{type(module).__name__} has no {what}", callers_line())
    return cast("Module", made)


def _replaced(value: Any, path: str, change: Callable[[str, Any], Any]) -> Any:
    """A copy of a tree of modules, with the replacements that ``change`` returns."""
    made = change(path, value) if isinstance(value, TensorBranch) else None
    if made is not None:
        return made
    if isinstance(value, TensorBranch):
        parts = value.tree_parts().items()
        return value.with_tree_parts({n: _replaced(p, joined(path, n), change) for n, p in parts})
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {n: _replaced(p, joined(path, n), change) for n, p in items}
    if isinstance(value, list | tuple):
        items = enumerate(cast("list[Any]", value))
        kind: Any = type(cast("object", value))
        return kind(_replaced(p, joined(path, n), change) for n, p in items)
    return value
