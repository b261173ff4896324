"""The attention that PyTorch traces on GPUs, against its own formula and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx

import modelcc  # noqa: E402
from modelcc.frontends.torch.traced import import_traced  # noqa: E402
from modelcc.runtime.arenas import Arenas  # noqa: E402
from modelcc.torch.compiled_call import CompiledCall  # noqa: E402
from modelcc.torch.tensor_memory import HostMemory  # noqa: E402

aten: Any = torch.ops.aten
GPU = "cuda:0"
SCALE = 0.4


def compiled(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """``function`` traced where tensors are on a GPU, as the processor computes it."""
    with FakeTensorMode():
        fakes = [
            torch.empty_like(torch.empty(e.shape, dtype=e.dtype), device=GPU) for e in examples
        ]
        graph = make_fx(function)(*fakes)
    found = import_traced(graph, device="cuda")
    assert not found.problems
    session = modelcc.compile(found.graph, threads=1).session
    call = CompiledCall(found.interface, session, HostMemory(found.interface, session, Arenas()))
    return lambda *given: call(list(given))


def expected(q: Any, k: Any, v: Any, dy: Any, mask: Any = None, causal: bool = False) -> list[Any]:
    """By the formula in 64 bits: the result, sums' logarithms, and gradients of all operands."""
    given = [t.double().requires_grad_() for t in (q, k, v)]
    added = None if mask is None else mask.double().requires_grad_()
    wide = [given[0], *(t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in given[1:])]
    scores = wide[0] @ wide[1].transpose(2, 3) * SCALE
    if added is not None:
        scores = scores + added
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    y = scores.softmax(3) @ wide[2]
    y.backward(dy.double())
    masks = [] if added is None else [added.grad]
    return [y.detach(), scores.logsumexp(3).detach(), *(t.grad for t in given), *masks]


def near(found: Any, wanted: Any, dtype: Any) -> None:
    assert found.dtype == dtype
    tolerance = 2e-5 if dtype == torch.float32 else 3e-3
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


def operands(dtype: Any, heads: int = 3, keys: int = 9) -> list[Any]:
    torch.manual_seed(3)
    of_keys = (2, heads, keys, 8)
    return [
        torch.randn(shape).to(dtype) for shape in ((2, 3, 9, 8), of_keys, of_keys, (2, 3, 9, 8))
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["flash", "efficient", "cudnn"])
def test_results_and_gradients(name: str, causal: bool) -> None:
    dtype = torch.float32 if name == "efficient" else torch.float16
    q, k, v, dy = operands(dtype)
    forward = getattr(aten, f"_scaled_dot_product_{name}_attention").default
    backward = getattr(aten, f"_scaled_dot_product_{name}_attention_backward").default
    asked = (0.0, causal) if name == "flash" else (None, True, 0.0, causal)

    def step(q: Any, k: Any, v: Any, dy: Any) -> Any:
        y, sums, *rest = forward(q, k, v, *asked, scale=SCALE)
        given = dy, q, k, v
        if name == "efficient":
            wanted = [True, True, True, False]
            grads = backward(*given, None, y, sums, *rest, 0.0, wanted, causal, scale=SCALE)
        elif name == "flash":
            grads = backward(*given, y, sums, *rest[:4], 0.0, causal, *rest[4:6], scale=SCALE)
        else:
            more = (*rest[4:6], None, *rest[:4])
            grads = backward(*given, y, sums, *more, 0.0, causal, scale=SCALE)
        return y, sums, *grads[:3]

    y, sums, *grads = compiled(step, q, k, v, dy)(q, k, v, dy)
    wanted_y, wanted_sums, *wanted_grads = expected(q, k, v, dy, None, causal)
    near(y, wanted_y, dtype)
    near(sums.reshape(2, 3, -1)[..., :9], wanted_sums, torch.float32)
    for found, wanted in zip(grads, wanted_grads, strict=True):
        near(found, wanted, dtype)


def test_sums_of_no_query_are_infinite() -> None:
    """PyTorch's own backward kernel reads a multiple of 32 of them."""
    q, k, v, _ = operands(torch.float32)
    forward = aten._scaled_dot_product_efficient_attention.default
    sums = compiled(lambda q, k, v: forward(q, k, v, None, True)[1], q, k, v)(q, k, v)
    assert sums.shape == (2, 3, 32) and bool((sums[..., 9:] == torch.inf).all())
    none = compiled(lambda q, k, v: forward(q, k, v, None, False)[:2], q, k, v)(q, k, v)
    assert none[1].shape == (2, 3, 0)


def test_a_mask_has_gradients() -> None:
    q, k, v, dy = operands(torch.float32, keys=16)
    mask = torch.randn(2, 1, 9, 16)
    forward = aten._scaled_dot_product_efficient_attention.default
    backward = aten._scaled_dot_product_efficient_attention_backward.default

    def step(q: Any, k: Any, v: Any, dy: Any, mask: Any) -> Any:
        y, sums, *seeds = forward(q, k, v, mask, True, scale=SCALE)
        wanted = [True] * 4
        return y, *backward(dy, q, k, v, mask, y, sums, *seeds, 0.0, wanted, False, scale=SCALE)

    results = compiled(step, q, k, v, dy, mask)(q, k, v, dy, mask)
    wanted = expected(q, k, v, dy, mask)
    for found, value in zip(results, [wanted[0], *wanted[2:]], strict=True):
        near(found, value, torch.float32)


def test_a_query_that_sees_no_key_has_no_gradients() -> None:
    """Its result is 0 and its sum's logarithm infinite, as of PyTorch's own kernels; the others'
    gradients are those without it."""
    q, k, v, dy = operands(torch.float32, keys=16)
    mask = torch.randn(2, 1, 9, 16)
    mask[:, :, 4] = -torch.inf
    forward = aten._scaled_dot_product_efficient_attention.default
    backward = aten._scaled_dot_product_efficient_attention_backward.default

    def step(q: Any, k: Any, v: Any, dy: Any, mask: Any) -> Any:
        y, sums, *seeds = forward(q, k, v, mask, True, scale=SCALE)
        wanted = [True, True, True, False]
        grads = backward(dy, q, k, v, mask, y, sums, *seeds, 0.0, wanted, False, scale=SCALE)
        return y, sums, *grads[:3]

    y, sums, dq, dk, dv = compiled(step, q, k, v, dy, mask)(q, k, v, dy, mask)
    assert not y[:, :, 4].any() and not dq[:, :, 4].any()
    assert bool((sums[:, :, 4] == torch.inf).all())
    others = [n for n in range(9) if n != 4]
    left = expected(q[:, :, others], k, v, dy[:, :, others], mask[:, :, others])
    near(dq[:, :, others], left[2], torch.float32)
    for found, wanted in zip((dk, dv), left[3:], strict=False):
        near(found, wanted, torch.float32)


@pytest.mark.parametrize(("kind", "error"), [("float16", 1e-3), ("bfloat16", 8e-3)])
def test_weights_of_halves_are_made_in_f32(kind: str, error: float) -> None:
    """Errors are those of operands of 11 and 8 bits; of rounded scores of such queries they would
    be three and seven times as large."""
    torch.manual_seed(3)
    q, k, v, dy = (torch.randn(2, 3, 64, 32).to(getattr(torch, kind)) for _ in range(4))
    q = q * 4
    forward = aten._scaled_dot_product_flash_attention.default
    backward = aten._scaled_dot_product_flash_attention_backward.default

    def step(q: Any, k: Any, v: Any, dy: Any) -> Any:
        y, sums, *rest = forward(q, k, v, scale=SCALE)
        more = (0.0, False, *rest[4:6])
        return backward(dy, q, k, v, y, sums, *rest[:4], *more, scale=SCALE)[:3]

    for found, wanted in zip(
        compiled(step, q, k, v, dy)(q, k, v, dy), expected(q, k, v, dy)[2:], strict=True
    ):
        assert float((found.double() - wanted).abs().max() / wanted.abs().max()) < error


def test_heads_in_groups() -> None:
    q, k, v, dy = operands(torch.bfloat16, heads=1)
    forward = aten._scaled_dot_product_flash_attention.default
    y = compiled(lambda q, k, v: forward(q, k, v, scale=SCALE)[0], q, k, v)(q, k, v)
    torch.testing.assert_close(y.double(), expected(q, k, v, dy)[0], rtol=2e-2, atol=2e-2)


def test_dropout_stays_pytorchs() -> None:
    q = torch.randn(1, 2, 4, 8, dtype=torch.float16)
    with FakeTensorMode():
        fake = torch.empty(q.shape, dtype=q.dtype, device=GPU)
        forward = aten._scaled_dot_product_flash_attention.default
        graph = make_fx(lambda q: forward(q, q, q, 0.5)[0])(fake)
    (problem,) = import_traced(graph, device="cuda").problems.values()
    assert "dropout" in str(problem)
