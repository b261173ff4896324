"""The cells that PyTorch traces on GPUs, against those of the processor and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx

import modelcc  # noqa: E402
from modelcc.frontends.torch.decompositions import functional_decompositions  # noqa: E402
from modelcc.frontends.torch.handlers import HANDLERS  # noqa: E402
from modelcc.frontends.torch.traced import import_traced  # noqa: E402
from modelcc.runtime.arenas import Arenas  # noqa: E402
from modelcc.torch.compiled_call import CompiledCall  # noqa: E402
from modelcc.torch.tensor_memory import HostMemory  # noqa: E402

aten: Any = torch.ops.aten
HIDDEN = 5


def compiled(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """``function`` traced where tensors are on a GPU, as the processor computes it."""
    with FakeTensorMode(), torch.no_grad():
        fakes = [torch.empty(e.shape, dtype=e.dtype, device="cuda:0") for e in examples]
        graph = make_fx(function, functional_decompositions(HANDLERS))(*fakes)
    found = import_traced(graph, device="cuda")
    assert not found.problems
    session = modelcc.compile(found.graph, threads=1).session
    call = CompiledCall(found.interface, session, HostMemory(found.interface, session, Arenas()))
    return lambda *given: call(list(given))


def operands(gates: int, states: int, dtype: Any) -> list[Any]:
    """Products of input and state, states, biases, and gradients of new states."""
    torch.manual_seed(gates)
    shapes = [(3, gates * HIDDEN)] * 2 + [(3, HIDDEN)] * states + [(gates * HIDDEN,)] * 2
    return [torch.randn(shape).to(dtype) for shape in (*shapes, *[(3, HIDDEN)] * states)]


def near(found: Any, wanted: Any, dtype: Any) -> None:
    assert all(f.dtype == dtype for f in found)
    rtol = 2e-5 if dtype == torch.float32 else 1e-2
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=rtol, atol=rtol)


def gradients(results: Any, given: list[Any], dys: list[Any]) -> list[Any]:
    torch.autograd.backward(results, [dy.double() for dy in dys])
    return [*(r.detach() for r in results), *(g.grad for g in given)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_lstm(dtype: Any) -> None:
    def step(x: Any, h: Any, c: Any, b: Any, d: Any, dy: Any, dc: Any) -> Any:
        y, cell, gates = aten._thnn_fused_lstm_cell(x, h, c, b, d)
        return y, cell, *aten._thnn_fused_lstm_cell_backward(dy, dc, c, cell, gates, True)

    x, h, c, b, d, dy = operands(4, 1, dtype)
    dc = torch.randn(3, HIDDEN).to(dtype)
    found = compiled(step, x, h, c, b, d, dy, dc)(x, h, c, b, d, dy, dc)
    given = [t.double().requires_grad_() for t in (x, h, c, b, d)]
    i, f, g, o = (given[0] + given[1] + given[3] + given[4]).chunk(4, 1)
    cell = f.sigmoid() * given[2] + i.sigmoid() * g.tanh()
    results = [o.sigmoid() * cell.tanh(), cell]
    near(found, gradients(results, given, [dy, dc]), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gru(dtype: Any) -> None:
    def step(x: Any, h: Any, state: Any, b: Any, d: Any, dy: Any) -> Any:
        y, kept = aten._thnn_fused_gru_cell(x, h, state, b, d)
        return y, *aten._thnn_fused_gru_cell_backward(dy, kept, True)

    x, h, state, b, d, dy = operands(3, 1, dtype)
    found = compiled(step, x, h, state, b, d, dy)(x, h, state, b, d, dy)
    given = [t.double().requires_grad_() for t in (x, h, state, b, d)]
    r, z, n = (given[0] + given[3]).chunk(3, 1)
    of_r, of_z, of_n = (given[1] + given[4]).chunk(3, 1)
    z = (z + of_z).sigmoid()
    new = (1 - z) * (n + (r + of_r).sigmoid() * of_n).tanh() + z * given[2]
    near(found, gradients([new], given, [dy]), dtype)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_of_models(name: str, bias: bool) -> None:
    """As by PyTorch's own cell on the processor."""
    cell = getattr(torch.nn, name)(4, HIDDEN, bias=bias).requires_grad_(False)
    names = [n for n, _ in cell.named_parameters()]

    def run(x: Any, *params: Any) -> Any:
        return torch.func.functional_call(cell, dict(zip(names, params, strict=True)), (x,))

    given = (torch.randn(3, 4), *cell.parameters())
    torch.testing.assert_close(compiled(run, *given)(*given), run(*given), rtol=1e-5, atol=1e-5)


def test_a_gradient_that_is_missing() -> None:
    """Where nothing is made of one of both states, or there is no bias."""
    c, cell, dc = (torch.randn(3, HIDDEN) for _ in range(3))
    gates = torch.rand(3, 4 * HIDDEN)

    def run(c: Any, cell: Any, gates: Any, d: Any) -> Any:
        backward = aten._thnn_fused_lstm_cell_backward
        first, second = (
            backward(None, d, c, cell, gates, False),
            backward(d, None, c, cell, gates, False),
        )
        both = backward(d, d, c, cell, gates, False)
        return [a + b - t for a, b, t in zip(first[:3], second[:3], both[:3], strict=True)]

    for found in compiled(run, c, cell, gates, dc)(c, cell, gates, dc):
        torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-5)
