"""Every layer: traced with a named batch it computes the same, and gradients are differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import Graph, Input, Tensor
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array, dtype_of
from modelcc.nn.functional.values import summed
from tests.nn.layer_cases import CASES, Case
from tests.shares import Turn

STEP = 1e-6
PADDING = "padding_idx"
EAGER = 3
"""One of so many is compiled as it comes."""


def leaves(tree: Any) -> list[Tensor]:
    """Tensors of a result."""
    if isinstance(tree, tuple | list):
        return [leaf for part in tree for leaf in leaves(part)]
    return [] if tree is None else [tree]


def made(case: Case) -> Any:
    """The layer in f64, with the same parameters each time."""
    layer = case.layer().initialize(0).astype("f64")
    rng = np.random.default_rng(1)
    values = {n: rng.uniform(-0.5, 0.5, t.shape) for n, t in layer.parameters().items()}
    return layer.with_parameters({n: Tensor(v) for n, v in values.items()})


def declared(case: Case) -> list[Input]:
    """Types of the inputs, their batch called ``n``."""
    found: list[Input] = []
    for array, batch in zip(case.inputs, case.batches, strict=True):
        shape = ["n" if axis == batch else extent for axis, extent in enumerate(array.shape)]
        found.append(Input(tuple(shape), dtype_of(array)))
    return found


def traced(case: Case) -> Graph:
    """The layer as a function of its parameters and inputs, with a named batch."""
    layer = made(case)

    def function(params: dict[str, Tensor], *xs: Any) -> Any:
        return tuple(leaves(layer.with_parameters(params)(*xs)))

    return modelcc.trace(function, layer.parameters(), *declared(case))


def run(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The graph by NumPy."""
    feeds = dict(zip(graph.inputs, arrays, strict=True))
    return list(interpret(graph.graph, feeds).values())


def evaluated(
    step: Callable[..., tuple[Any, ...]], parameters: dict[str, Tensor], inputs: list[Array]
) -> list[Array]:
    """All results by NumPy, of the traced ``step``."""
    types = [Input(x.shape, dtype_of(x)) for x in inputs]
    graph = modelcc.trace(step, parameters, *types)
    return run(graph, [*(t.numpy() for t in parameters.values()), *inputs])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layers_and_gradients(case: Case, turn: Turn) -> None:
    """By NumPy as it is traced, some compiled as they come, and by differences."""
    layer, graph = made(case), traced(case)
    parameters = {n: t.numpy() for n, t in layer.parameters().items()}
    own = list(parameters.values())
    expected = run(graph, [*own, *case.inputs])
    rng = np.random.default_rng(2)
    weights = [rng.uniform(0.5, 1.5, e.shape) for e in expected]
    floats = [i for i, x in enumerate(case.inputs) if x.dtype.kind == "f"]

    def cost(params: dict[str, Tensor], chosen: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        given: list[Any] = list(case.inputs)
        for i, x in zip(floats, chosen, strict=True):
            given[i] = x
        results = leaves(layer.with_parameters(params)(*given))
        totals = [summed(r * Tensor(w)) for r, w in zip(results, weights, strict=True)]
        return sum(totals[1:], totals[0]), results

    def step(params: dict[str, Tensor], *chosen: Tensor) -> tuple[Tensor, ...]:
        (_, results), gradients = modelcc.value_and_grad(cost, argnums=(0, 1), has_aux=True)(
            params, list(chosen)
        )
        return (*results, *gradients[0].values(), *gradients[1])

    inputs = [case.inputs[i] for i in floats]
    if str(case) in map(str, turn.of(CASES, EAGER)):
        found = [t.numpy() for t in step(layer.parameters(), *map(Tensor, inputs))]
    else:
        found = evaluated(step, layer.parameters(), inputs)
    results, gradients = found[: len(expected)], found[len(expected) :]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-9, atol=1e-9)

    ways = [rng.normal(size=a.shape) for a in own]
    if case.kwargs.get(PADDING) is not None:
        ways[0][case.kwargs[PADDING]] = 0  # is not trained
    moves = [rng.normal(size=x.shape) if i in floats else None for i, x in enumerate(case.inputs)]

    def moved(by: float) -> float:
        params = [a + by * w for a, w in zip(own, ways, strict=True)]
        pairs = zip(case.inputs, moves, strict=True)
        given = [x if m is None else x + by * m for x, m in pairs]
        found = run(graph, [*params, *given])
        return sum(float((r * w).sum()) for r, w in zip(found, weights, strict=True))

    slope = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    taken = [*ways, *(m for m in moves if m is not None)]
    by_gradients = sum(float((g * w).sum()) for g, w in zip(gradients, taken, strict=True))
    assert by_gradients == pytest.approx(slope, rel=1e-6, abs=1e-6)


CHOSEN = ("Conv2d(3, 4, 3, padding=1)", "ConvTranspose2d(4", "Linear(5, 3) of 4", "BatchNorm2d(3) ",
          "LayerNorm(6) of 2x3", "LSTM(3, 4) of 5x2", "MultiheadAttention(6, 2) of 4x2",
          "TransformerEncoderLayer(6, 2, 8, 0.0) ", "MaxPool2d(2) ", "Embedding(7, 4) ",
          "Upsample(scale_factor=2, mode=bilinear)", "AdaptiveAvgPool2d((4")  # fmt: skip
COMPILED = [next(c for c in CASES if str(c).startswith(name)) for name in CHOSEN]


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_one_compiled_layer_takes_any_batch(case: Case) -> None:
    layer, graph = made(case), traced(case)
    model = graph.compile()
    own = [t.numpy() for t in layer.parameters().values()]
    for times in (1, 3):
        given = [
            x if batch is None else np.concatenate([x] * times, batch)
            for x, batch in zip(case.inputs, case.batches, strict=True)
        ]
        found: Any = model(*own, *given)
        found = found if isinstance(found, tuple) else (found,)
        wanted = run(graph, [*own, *given])
        for result, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", COMPILED[::3], ids=str)
def test_a_module_is_an_argument_of_a_compiled_function(case: Case) -> None:
    layer = made(case)
    step = modelcc.jit(lambda module, *xs: (tuple(leaves(module(*xs))), module))
    results, after = step(layer, *map(Tensor, case.inputs))
    expected = leaves(layer(*case.inputs))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-9)
    for name, tensor in layer.buffers().items():
        np.testing.assert_allclose(after.buffers()[name].numpy(), tensor.numpy(), rtol=1e-9)


SECOND = [c for c in COMPILED if c.name in ("Conv2d", "Linear", "BatchNorm2d", "LayerNorm", "LSTM",
                                            "MultiheadAttention")]  # fmt: skip


@pytest.mark.parametrize("case", SECOND, ids=str)
def test_gradients_of_gradients(case: Case) -> None:
    """Along one direction, by differences of first gradients."""
    layer = made(case)
    own = [t.numpy() for t in layer.parameters().values()]
    rng = np.random.default_rng(3)
    ways = [rng.normal(size=x.shape) for x in case.inputs]

    def slope(params: dict[str, Tensor], *xs: Any) -> Tensor:
        """The derivative of a cost along ``ways``, by its gradient."""

        def cost(inputs: tuple[Tensor, ...]) -> Tensor:
            results = leaves(layer.with_parameters(params)(*inputs))
            totals = [summed(r * r * r) for r in results]
            return sum(totals[1:], totals[0])

        found = modelcc.grad(cost)(xs)
        totals = [summed(g * Tensor(w)) for g, w in zip(found, ways, strict=True)]
        return sum(totals[1:], totals[0])

    types = declared(case)
    first = modelcc.trace(slope, layer.parameters(), *types)
    both = modelcc.trace(
        lambda params, *xs: modelcc.grad(lambda inputs: slope(params, *inputs))(xs),
        layer.parameters(),
        *types,
    )
    gradients = run(both, [*own, *case.inputs])
    moves = [rng.normal(size=x.shape) for x in case.inputs]

    def moved(by: float) -> float:
        given = [x + by * m for x, m in zip(case.inputs, moves, strict=True)]
        return float(run(first, [*own, *given])[0])

    expected = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    found = sum(float((g * m).sum()) for g, m in zip(gradients, moves, strict=True))
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
