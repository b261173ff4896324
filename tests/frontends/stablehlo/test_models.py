"""Models as people write them in JAX: blocks of ResNet and ViT, a decoder with a cache, scans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc.jax  # noqa: E402
from modelcc.ir.types import Array  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

jnp, lax = jax.numpy, jax.lax
WIDTH, HEADS, PLACES = 16, 2, 8
Tree = Any


def random(*shape: int) -> Array:
    scale = 1 / np.sqrt(max(1, int(np.prod(shape[:-1]))))
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(np.float32)


def assert_same(found: Tree, wanted: Tree) -> None:
    """Pytrees of the same structure, types and, to 1e-4 of the largest, values."""
    (ours, own), (theirs, their) = jax.tree.flatten(found), jax.tree.flatten(wanted)
    assert own == their
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        x, y = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
        np.testing.assert_allclose(x, y, 1e-4, 1e-4 * float(np.abs(y).max(initial=0)))


def batch_spec(like: Array) -> Any:
    (batch,) = jax.export.symbolic_shape("batch")
    return jax.ShapeDtypeStruct((batch, *like.shape[1:]), like.dtype)


def convolved(x: Any, w: Any, stride: int = 1) -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=names)


def normalised(x: Any, p: Tree) -> Any:
    return (x - p["mean"]) * lax.rsqrt(p["variance"] + 1e-5) * p["scale"] + p["bias"]


def residual_block(p: Tree, x: Any) -> Tree:
    x = jax.nn.relu(normalised(convolved(x, p["stem"], 2), p["norm"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    y = jax.nn.relu(normalised(convolved(x, p["same"]), p["norm"]))
    x = jax.nn.relu(x + y)
    return {"logits": jnp.mean(x, (1, 2)) @ p["head"], "features": x}


RESIDUAL = {
    "stem": random(7, 7, 3, 8), "same": random(3, 3, 8, 8), "head": random(8, 5),
    "norm": {"mean": random(8), "variance": random(8) ** 2 + 1, "scale": random(8),
             "bias": random(8)},
}  # fmt: skip


def layer_norm(x: Any, p: Tree) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * p


def attended(q: Any, k: Any, v: Any, p: Tree, mask: Any = None) -> Any:
    scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / np.sqrt(WIDTH // HEADS)
    scores = scores if mask is None else jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqt,bthk,hkd->bqd", jax.nn.softmax(scores, -1), v, p["out"])


def split(x: Any, p: Tree) -> list[Any]:
    return [jnp.einsum("btd,dhk->bthk", x, p[name]) for name in ("q", "k", "v")]


def block() -> Tree:
    heads = {name: random(WIDTH, HEADS, WIDTH // HEADS) for name in ("q", "k", "v")}
    return {**heads, "out": random(HEADS, WIDTH // HEADS, WIDTH), "norm": random(WIDTH) + 1,
            "up": random(WIDTH, 4 * WIDTH), "down": random(4 * WIDTH, WIDTH)}  # fmt: skip


def vision_block(p: Tree, x: Any) -> Any:
    x = lax.conv_general_dilated(
        x, p["patch"], (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = x.reshape(x.shape[0], -1, WIDTH) + p["places"]
    q, k, v = split(layer_norm(x, p["norm"]), p)
    x = x + attended(q, k, v, p)
    return x + jax.nn.gelu(layer_norm(x, p["norm"]) @ p["up"], approximate=False) @ p["down"]


VISION = {**block(), "patch": random(4, 4, 3, WIDTH), "places": random(4, WIDTH)}


def decoder_step(p: Tree, token: Any, place: Any, cache: Tree) -> Tree:
    x = p["words"][token][:, None, :] + lax.dynamic_slice_in_dim(p["places"], place, 1, 0)
    q, k, v = split(layer_norm(x, p["norm"]), p)
    keys, values = (
        lax.dynamic_update_slice(old, new, (0, place, 0, 0))
        for old, new in zip(cache, (k, v), strict=True)
    )
    x = x + attended(q, keys, values, p, jnp.arange(PLACES) <= place)
    x = x + jax.nn.gelu(layer_norm(x, p["norm"]) @ p["up"]) @ p["down"]
    return x[:, 0] @ p["words"].T, (keys, values)


DECODER = {**block(), "words": random(11, WIDTH), "places": random(PLACES, WIDTH)}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "batch"])
@pytest.mark.parametrize(
    ("function", "parameters", "image"),
    [(residual_block, RESIDUAL, (16, 16, 3)), (vision_block, VISION, (8, 8, 3))],
    ids=["resnet", "vit"],
)
def test_blocks(
    function: Callable[..., Any], parameters: Tree, image: tuple[int, ...], symbolic: bool
) -> None:
    x = random(3, *image)
    spec = batch_spec(x) if symbolic else x
    compiled = modelcc.jax.compile(function, parameters, spec, cache=None)
    for batch in (1, 3) if symbolic else (3,):
        assert_same(compiled(parameters, x[:batch]), jax.jit(function)(parameters, x[:batch]))


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "batch"])
def test_a_decoder_writes_its_cache(symbolic: bool) -> None:
    token = np.array([3, 7], np.int32)
    empty = (np.zeros((2, PLACES, HEADS, WIDTH // HEADS), np.float32),) * 2
    specs = (token, empty)
    if symbolic:
        (n,) = jax.export.symbolic_shape("n")
        specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype), specs)
    step = modelcc.jax.compile(decoder_step, DECODER, specs[0], np.int32(0), specs[1], cache=None)
    ours = theirs = empty
    for place in range(4):
        found, ours = step(DECODER, token, np.int32(place), ours)
        wanted, theirs = jax.jit(decoder_step)(DECODER, token, np.int32(place), theirs)
        assert_same((found, ours), (wanted, theirs))
        token = np.asarray(wanted.argmax(-1), np.int32)


def recurrent(w: Tree, xs: Any) -> Tree:
    def cell(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w["in"] + h @ w["own"])
        return h, h.sum(-1)

    return lax.scan(cell, jnp.zeros((xs.shape[1], 4)), xs)


def growing(x: Any) -> Any:
    return lax.while_loop(
        lambda c: (c[0] < 50) & (c[1].sum() < 100), lambda c: (c[0] + 3, c[1] * 1.5 + 1), (0, x)
    )


def switched(i: Any, x: Any) -> Any:
    return lax.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda x: -x], x)


def drawn(key: Any) -> Any:
    return jax.random.normal(jax.random.wrap_key_data(key), (5, 7))


def waves(z: Any, x: Any) -> Any:
    spectrum = jnp.fft.fft(z)
    turned = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1j + c[1]), (0, z))
    chosen = lax.cond(x.sum() > 0, lambda v: v, lambda v: -v, z)
    real = jnp.fft.irfft(jnp.fft.rfft(x) * 2, x.size)
    same = lax.bitcast_convert_type(z, z.dtype)
    return spectrum, jnp.fft.ifft(spectrum), turned, chosen, real, jnp.abs(z), same @ z, jnp.exp(z)


def factors(a: Any, b: Any) -> Any:
    upper = jnp.linalg.cholesky(a, upper=True)
    solve = partial(lax.linalg.triangular_solve, jnp.linalg.cholesky(a))
    solved = [solve(b, left_side=True, lower=lower, transpose_a=turned, unit_diagonal=unit)
              for lower in (True, False) for turned in (True, False)
              for unit in (True, False)]  # fmt: skip
    return upper, [x[:, 1] for x in solved], solve(b.swapaxes(-1, -2), lower=True)


CELL = {"in": random(3, 4), "own": random(4, 4)}
X = np.linspace(-1, 1, 6, dtype=np.float32)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (recurrent, (CELL, random(5, 2, 3))),
        (jax.grad(lambda w, xs: recurrent(w, xs)[1].sum()), (CELL, random(5, 2, 3))),
        (jax.grad(lambda p, x: (residual_block(p, x)["logits"] ** 2).sum()),
         (RESIDUAL, random(2, 16, 16, 3))),
        (growing, (X,)),
        *((switched, (np.int32(i), X)) for i in (-1, 0, 1, 2, 5)),
        (drawn, (np.array([0, 3], np.uint32),)),
        (lambda x: (jnp.sort(x), jnp.argsort(-x), lax.top_k(x, 3), jnp.argmin(x)), (X,)),
        (lambda x, i: (x[i], x.at[i].set(0, mode="drop"), x.at[i].add(2)),
         (X, np.array([5, 1, 1, 99], np.int32))),
        (factors, (np.stack([np.eye(3) * 2 + 1, np.eye(3) + 0.5]).astype(np.float32),
                   random(2, 3, 2))),
        (waves, ((X + 1j * X[::-1]).astype(np.complex64), X)),
        (lambda x: lax.associative_scan(lambda a, b: a * b + a, x), (X,)),
        (lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b - a - b + 2, (0,)), (X,)),
    ],
    ids=["scan", "gradient of a scan", "gradient of a ResNet", "while", *(f"switch {i}" for i in (
        -1, 0, 1, 2, 5)), "random", "order", "indices", "matrices",
         "complex", "associative scan", "any region"],
)  # fmt: skip
def test_functions(function: Callable[..., Any], arguments: Tree) -> None:
    assert_same(modelcc.jax.jit(function, cache=None)(*arguments), jax.jit(function)(*arguments))


def test_greatest_elements_of_windows_keep_nan() -> None:
    x = random(2, 17, 18, 16)
    x[np.random.default_rng(0).random(x.shape) < 0.05] = np.nan

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    wanted = pooled(x)
    assert 0.1 < np.isnan(wanted).mean() < 0.9
    np.testing.assert_array_equal(modelcc.jax.jit(pooled, cache=None)(x), wanted)


def test_named_rows_are_sorted_and_summed_up() -> None:
    def ordered(x: Any) -> Any:
        return jnp.sort(x, 0), jnp.cumsum(x, 0), jnp.cumprod(x[::-1], 0), lax.cumsum(x, 0, True)

    like = random(5, 3)
    net = modelcc.jax.compile(ordered, batch_spec(like), cache=None)
    for x in (like, like[:1]):
        assert_same(net(x), ordered(x))
