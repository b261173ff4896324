"""Operators whose work depends on data, transforms, and products and convolutions of integers:
``python -m benchmarks.irregular``.

Each model, with a named extent n, is compiled once and runs at n, 4 n and 16 n by turns with ONNX
Runtime in one process; sorts and transforms with NumPy or SciPy, too.  ``growth`` is the time at
16 n over that at n: 16 is linear.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median
from types import MappingProxyType

import click
import numpy as np
import onnx.numpy_helper
import onnx.parser
import onnxruntime
from numpy.typing import NDArray
from scipy import fft

import modelcc

Array = NDArray[np.generic]
Feeds = dict[str, Array]
SECONDS = 0.6
"""Measured for each size of each model."""


@dataclass(frozen=True)
class Case:
    """A graph, its inputs at extent n, the least n, and what NumPy or SciPy has for it.

    Inputs that are ``constants``, the same at any n, come with the model.
    """

    graph: str
    feeds: Callable[[np.random.Generator, int], Feeds]
    least: int = 256
    opset: int = 18
    library: Callable[[Feeds], object] | None = None
    constants: tuple[str, ...] = ()


def _f32(random: np.random.Generator, *shape: int) -> Array:
    return random.random(shape, dtype=np.float32)


def _scatter(kind: str, reduction: str) -> Case:
    head = "g (float[n, 16] x, int64[k, {i}] i, float[k{u}] u) => (float[n, 16] y)"
    if kind == "ScatterElements":
        graph = head.format(i=16, u=", 16")
        body = f'y = ScatterElements<axis = 0, reduction = "{reduction}">(x, i, u)'
    else:
        rows = kind == "ScatterND rows"
        graph = head.format(i=1 if rows else 2, u=", 16" if rows else "")
        body = f'y = ScatterND<reduction = "{reduction}">(x, i, u)'

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        grid = np.stack([np.repeat(np.arange(n), 16), np.tile(np.arange(16), n)], 1)
        places = {
            "ScatterElements": np.stack([random.permutation(n) for _ in range(16)], 1),
            "ScatterND rows": random.permutation(n)[:, None],
            "ScatterND elements": random.permutation(grid),
        }[kind]
        updates = (n * 16,) if kind == "ScatterND elements" else (n, 16)
        return {"x": _f32(random, n, 16), "i": places, "u": _f32(random, *updates)}

    return Case(f"{graph} {{ {body} }}", feeds)


def _boxes(random: np.random.Generator, n: int, most: int) -> Feeds:
    corner = _f32(random, 1, n, 2)
    return {
        "b": np.concatenate([corner, corner + np.float32(0.05)], -1), "s": _f32(random, 1, 1, n),
        "k": np.array([most]), "t": np.array([0.5], np.float32), "l": np.array([0.1], np.float32),
    }  # fmt: skip


def _regions(op: str) -> Case:
    """An image of 64 channels, n boxes in it, 7 x 7 bins."""
    align = op == "RoiAlign"
    inputs = "float[n, 4] b, int64[n] i" if align else "float[n, 5] b"
    bins = "output_height = 7, output_width = 7" if align else "pooled_shape = [7, 7]"
    body = f"y = {op}<{bins}>({'x, b, i' if align else 'x, b'})"
    graph = f"g (float[1, 64, 50, 50] x, {inputs}) => (float[n, 64, 7, 7] y) {{ {body} }}"

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        corner = 28 * _f32(random, n, 2)
        boxes = np.concatenate([corner, corner + 20 * _f32(random, n, 2)], 1)
        x = _f32(random, 1, 64, 50, 50)
        numbers = np.zeros(n, np.int64)
        if align:
            return {"x": x, "b": boxes, "i": numbers}
        return {"x": x, "b": np.hstack([numbers.astype(np.float32)[:, None], boxes])}

    return Case(graph, feeds, 64)


def _unpool() -> Case:
    graph = (
        "g (float[1, 16, n, 16] x, int64[1, 16, n, 16] i) => (float[1, 16, h, 32] y) "
        "{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i) }"
    )

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        corners = np.arange(16 * n)[:, None] * 64 + 2 * np.arange(16)
        steps = random.integers(0, 2, (2, 16 * n, 16))
        places = corners + 32 * steps[0] + steps[1]
        return {"x": _f32(random, 1, 16, n, 16), "i": places.reshape(1, 16, n, 16)}

    return Case(graph, feeds, 64)


def _top_k(part: int, rows: int) -> Case:
    graph = "g (float[r, n] x, int64[1] k) => (float[r, m] y, int64[r, m] j) { y, j = TopK(x, k) }"

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        return {"x": _f32(random, rows, n), "k": np.array([n // part])}

    whole = (lambda f: np.argsort(f["x"], 1)) if part == 1 else None
    return Case(graph, feeds, 1024, library=whole)


def _transform(parts: int, onesided: int) -> Case:
    graph = (
        f"g (float[1, n, {parts}] x) => (float[1, m, 2] y) "
        f"{{ y = DFT<axis = 1, onesided = {onesided}>(x) }}"
    )

    def library(feeds: Feeds) -> object:
        x = feeds["x"]
        return fft.rfft(x[..., 0], axis=1) if parts == 1 else fft.fft(x.view(np.complex64)[..., 0])

    return Case(graph, lambda r, n: {"x": _f32(r, 1, n, parts)}, 256, 17, library)


def _forest(trees: int, leaves: int) -> Case:
    """Trees that grow leaf by leaf, any of them next; a tenth of the features is missing."""
    random = np.random.default_rng(0)
    inner = leaves - 1
    columns: dict[str, list[object]] = {key: [] for key in ("true", "false", "modes")}
    for _ in range(trees):
        ends, true, false = [0], [0] * (2 * leaves - 1), [0] * (2 * leaves - 1)
        for split in range(inner):
            node = ends.pop(int(random.integers(len(ends))))
            true[node], false[node] = 2 * split + 1, 2 * split + 2
            ends += [true[node], false[node]]
        columns["true"] += true
        columns["false"] += false
        columns["modes"] += ["BRANCH_LEQ" if node else "LEAF" for node in true]
    size = 2 * leaves - 1
    ids = np.tile(np.arange(size), trees)
    ends_of = np.flatnonzero(np.array(columns["modes"]) == "LEAF")
    owners = np.repeat(np.arange(trees), size)
    lists: dict[str, Sequence[object]] = {
        "nodes_treeids": owners.tolist(),
        "nodes_nodeids": ids.tolist(),
        "nodes_featureids": random.integers(0, 50, len(ids)).tolist(),
        "nodes_truenodeids": columns["true"],
        "nodes_falsenodeids": columns["false"],
        "nodes_missing_value_tracks_true": random.integers(0, 2, len(ids)).tolist(),
        "nodes_values": [f"{v:.6f}" for v in random.random(len(ids))],
        "nodes_modes": [f'"{mode}"' for mode in columns["modes"]],
        "target_treeids": owners[ends_of].tolist(),
        "target_nodeids": ids[ends_of].tolist(),
        "target_ids": [0] * len(ends_of),
        "target_weights": [f"{v:.6f}" for v in random.random(len(ends_of))],
    }
    given = ", ".join(f"{key} = [{', '.join(map(str, of))}]" for key, of in lists.items())
    body = f"y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, {given}>(x)"

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        x = _f32(random, n, 50)
        x[random.random(x.shape) < 0.1] = np.nan
        return {"x": x}

    return Case(f"g (float[n, 50] x) => (float[n, 1] y) {{ {body} }}", feeds, 16)


def _bytes(random: np.random.Generator, *shape: int) -> Array:
    return random.integers(0, 256, shape).astype(np.uint8)


def _convolution(
    form: str,
    kernel: int,
    axes: int = 1,
    dilation: int = 1,
    groups: int = 1,
    stride: int = 1,
    at_run_time: bool = False,
) -> Case:
    """64 channels of u8, n long and 16 wide, by u8, which ONNX Runtime sums exactly."""
    wide = "" if axes == 1 else ", 16"
    attributes = (
        f"dilations = {[dilation] * axes}, strides = {[stride] * axes}, group = {groups}, "
        f"pads = {[dilation * (kernel // 2)] * (2 * axes)}"
    )
    weights = (64, 64 // groups, *(kernel,) * axes)
    shape = ", ".join(map(str, weights))
    body, result = {
        "ConvInteger": (f"y = ConvInteger<{attributes}>(x, w, z, v)", "int32"),
        "QLinearConv": (f"y = QLinearConv<{attributes}>(x, s, z, w, t, v, u, z)", "uint8"),
        "dequantised": (
            "a = DequantizeLinear(x, s, z) b = DequantizeLinear(w, t, v) "
            f"c = Conv<{attributes}>(a, b) y = QuantizeLinear(c, u, z)",
            "uint8",
        ),
    }[form]
    parameters = "uint8 z, uint8 v" + (
        "" if form == "ConvInteger" else ", float s, float t, float u"
    )
    results = ", ".join("abcd"[: axes + 2])
    graph = (
        f"g (uint8[1, 64, n{wide}] x, uint8[{shape}] w, {parameters}) => "
        f"({result}[{results}] y) {{ {body} }}"
    )

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        given = {
            "w": _bytes(np.random.default_rng(1), *weights),
            "x": _bytes(random, 1, 64, n, *(16,) * (axes - 1)),
            "z": np.array(128, np.uint8), "v": np.array(120, np.uint8),
        }  # fmt: skip
        scales = {"s": 0.02, "t": 0.01, "u": 0.02 * float(np.sqrt(np.prod(weights[1:])))}
        if form != "ConvInteger":
            given |= {name: np.array(scale, np.float32) for name, scale in scales.items()}
        return given

    known = () if form == "ConvInteger" else ("z", "s", "t", "u")
    return Case(graph, feeds, 256 if axes == 1 else 64,
                constants=("v", *known, *(() if at_run_time else ("w",))))  # fmt: skip


def _deformable(groups: int) -> Case:
    """32 channels, n long and 16 wide, with a mask."""
    weights = (32, 32 // groups, 3, 3)
    shape = ", ".join(map(str, weights))
    graph = (
        f"g (float[1, 32, n, 16] x, float[{shape}] w, float[1, {18 * groups}, n, 16] o, "
        f"float[32] b, float[1, {9 * groups}, n, 16] m) => (float[1, 32, n, 16] y) {{ "
        f"y = DeformConv<pads = [1, 1, 1, 1], group = {groups}, offset_group = {groups}>"
        "(x, w, o, b, m) }"
    )

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        fixed = np.random.default_rng(1)
        return {
            "x": _f32(random, 1, 32, n, 16), "w": _f32(fixed, *weights), "b": _f32(fixed, 32),
            "o": 4 * _f32(random, 1, 18 * groups, n, 16), "m": _f32(random, 1, 9 * groups, n, 16),
        }  # fmt: skip

    return Case(graph, feeds, 64, 19, constants=("w", "b"))


EXPERTS, WIDTH, HIDDEN = 8, 64, 128


def _experts() -> Case:
    """The best two of experts for each of n rows, as torch exports it: rows gathered for each."""
    lines = ["l = MatMul(x, g) p = Softmax<axis = -1>(l) t, i = TopK(p, two)"]
    lines += ["s = Shape(x) y0 = ConstantOfShape(s)"]
    for e in range(EXPERTS):
        lines += [
            f"q{e} = Equal(i, e{e}) c{e} = NonZero(q{e}) k{e} = Transpose<perm = [1, 0]>(c{e})",
            f"r{e} = Gather<axis = 1>(k{e}, zero) x{e} = Gather<axis = 0>(x, r{e})",
            f"a{e} = MatMul(x{e}, u{e}) b{e} = Relu(a{e}) o{e} = MatMul(b{e}, d{e})",
            f"v{e} = GatherND(t, k{e}) w{e} = Unsqueeze(v{e}, last) z{e} = Mul(o{e}, w{e})",
            f"j{e} = Unsqueeze(r{e}, last)",
            f'y{e + 1} = ScatterND<reduction = "add">(y{e}, j{e}, z{e})',
        ]
    fixed = np.random.default_rng(1)
    known: Feeds = {"g": _f32(fixed, WIDTH, EXPERTS), "two": np.array([2])}
    known |= {"zero": np.array(0), "last": np.array([-1])}
    for e in range(EXPERTS):
        known |= {f"e{e}": np.array(e), f"u{e}": _f32(fixed, WIDTH, HIDDEN) - np.float32(0.5)}
        known |= {f"d{e}": _f32(fixed, HIDDEN, WIDTH) - np.float32(0.5)}
    inputs = ", ".join(
        f"{'float' if value.dtype == np.float32 else 'int64'}"
        f"{list(value.shape) if value.ndim else ''} {name}"
        for name, value in known.items()
    )
    body = " ".join(lines)
    graph = f"g (float[n, {WIDTH}] x, {inputs}) => (float[n, {WIDTH}] y{EXPERTS}) {{ {body} }}"
    return Case(graph, lambda r, n: {"x": _f32(r, n, WIDTH), **known}, 64, constants=(*known,))


SUPPRESSION = (
    "g (float[1, n, 4] b, float[1, 1, n] s, int64[1] k, float[1] t, float[1] l) => (int64[m, 3] y) "
    "{ y = NonMaxSuppression(b, s, k, t, l) }"
)
CASES: Mapping[str, Case] = MappingProxyType(
    {
        **{
            f"{kind} {reduction}": _scatter(kind, reduction)
            for kind in ("ScatterElements", "ScatterND rows", "ScatterND elements")
            for reduction in ("none", "add", "max")
        },
        "TopK n / 4": _top_k(4, 4),
        "TopK n / 64": _top_k(64, 4),
        "sort (TopK n)": _top_k(1, 1),
        "NonZero": Case(
            "g (float[n, 16] x) => (int64[2, m] y) { y = NonZero(x) }",
            lambda r, n: {"x": (r.random((n, 16)) > 0.5).astype(np.float32)},
        ),
        "Unique": Case(
            "g (int64[n] x) => (int64[m] y) { y = Unique(x) }",
            lambda r, n: {"x": r.integers(0, n, n)}, library=lambda f: np.unique(f["x"]),
        ),
        "Compress": Case(
            "g (float[n, 16] x, bool[n] c) => (float[m, 16] y) { y = Compress<axis = 0>(x, c) }",
            lambda r, n: {"x": _f32(r, n, 16), "c": r.random(n) > 0.5},
        ),
        "CumSum": Case(
            "g (float[16, n] x, int64 a) => (float[16, n] y) { y = CumSum(x, a) }",
            lambda r, n: {"x": _f32(r, 16, n), "a": np.array(1)},
        ),
        "NonMaxSuppression 100": Case(SUPPRESSION, lambda r, n: _boxes(r, n, 100)),
        "NonMaxSuppression all": Case(SUPPRESSION, lambda r, n: _boxes(r, n, 1 << 30)),
        "GatherND": Case(
            "g (float[n, 16] x, int64[k, 2] i) => (float[k] y) { y = GatherND(x, i) }",
            lambda r, n: {
                "x": _f32(r, n, 16),
                "i": np.stack([r.integers(0, n, n), r.integers(0, 16, n)], 1),
            },
        ),
        "GridSample": Case(
            "g (float[1, 8, n, 16] x, float[1, n, 16, 2] i) => (float[1, 8, n, 16] y) "
            "{ y = GridSample(x, i) }",
            lambda r, n: {"x": _f32(r, 1, 8, n, 16), "i": _f32(r, 1, n, 16, 2)},
        ),
        "RoiAlign": _regions("RoiAlign"),
        "MaxRoiPool": _regions("MaxRoiPool"),
        "MaxUnpool": _unpool(),
        "DFT real, half": _transform(1, 1),
        "DFT complex": _transform(2, 0),
        "ReverseSequence": Case(
            "g (float[n, 4, 16] x, int64[4] l) => (float[n, 4, 16] y) "
            "{ y = ReverseSequence(x, l) }",
            lambda r, n: {"x": _f32(r, n, 4, 16), "l": np.array([n, n // 2, 1, 3])},
        ),
        "Resize cubic": Case(
            'g (float[1, 4, n, 16] x, float[4] s) => (float[a, b, c, d] y) '
            '{ y = Resize<mode = "cubic">(x, , s) }',
            lambda r, n: {"x": _f32(r, 1, 4, n, 16), "s": np.array([1, 1, 2, 2], np.float32)}, 64,
        ),
        **{
            f"Resize {name}": Case(
                f"g (float[1, 8, n, 32] x, float[4] s) => (float[a, b, c, d] y) "
                f'{{ y = Resize<mode = "{mode}", antialias = {antialias}>(x, , s) }}',
                lambda r, n, by=by: {
                    "x": _f32(r, 1, 8, n, 32), "s": np.array([1, 1, by, by], np.float32)
                }, 64,
            )
            for name, mode, antialias, by in (
                ("linear", "linear", 0, 2), ("nearest", "nearest", 0, 2),
                ("antialias", "linear", 1, 0.5),
            )
        },
        "Resize to sizes": Case(
            "g (float[1, 8, n, 32] x, int64[4] s) => (float[a, b, c, d] y) { y = Resize<"
            'mode = "linear", coordinate_transformation_mode = "align_corners">(x, , , s) }',
            lambda r, n: {"x": _f32(r, 1, 8, n, 32), "s": np.array([1, 8, n // 2 + 5, 45])}, 64,
        ),
        **{
            f"Pad {mode}": Case(
                "g (float[1, 8, n, 32] x, int64[8] p) => (float[a, b, c, d] y) "
                f'{{ y = Pad<mode = "{mode}">(x, p) }}',
                lambda r, n: {"x": _f32(r, 1, 8, n, 32), "p": np.array([0, 0, 3, 3] * 2)}, 64,
            )
            for mode in ("constant", "reflect")
        },
        "Tile": Case(
            "g (float[n, 16] x, int64[2] t) => (float[a, b] y) { y = Tile(x, t) }",
            lambda r, n: {"x": _f32(r, n, 16), "t": np.array([3, 4])}, 64,
        ),
        "MatMulInteger": Case(
            "g (uint8[n, 64] x, uint8[64, n] w) => (int32[n, n] y) { y = MatMulInteger(x, w) }",
            lambda r, n: {
                name: r.integers(0, 255, shape).astype(np.uint8)
                for name, shape in (("x", (n, 64)), ("w", (64, n)))
            }, 64,
        ),
        "100 trees of 64 leaves": _forest(100, 64),
        "1000 trees of 31 leaves": _forest(1000, 31),
        "ConvInteger": _convolution("ConvInteger", 3, 2),
        "ConvInteger dilated": _convolution("ConvInteger", 11, dilation=5),
        "ConvInteger weights": _convolution("ConvInteger", 11, dilation=5, at_run_time=True),
        "ConvInteger groups": _convolution("ConvInteger", 3, 2, groups=4),
        "ConvInteger depthwise": _convolution("ConvInteger", 31, groups=64),
        "QLinearConv": _convolution("QLinearConv", 3, 2),
        "QLinearConv strided": _convolution("QLinearConv", 5, 2, stride=2),
        "QLinearConv groups": _convolution("QLinearConv", 3, 2, groups=16),
        "QLinearConv depthwise": _convolution("QLinearConv", 3, 2, groups=64),
        "Conv dequantised": _convolution("dequantised", 3, 2, dilation=3),
        "Conv deq. weights": _convolution("dequantised", 3, 2, at_run_time=True),
        "DeformConv": _deformable(1),
        "DeformConv groups": _deformable(4),
        "mixture of experts": _experts(),
        "InstanceNormalization": Case(
            "g (float[1, 32, n, 64] x, float[32] s, float[32] b) => (float[1, 32, n, 64] y) "
            "{ y = InstanceNormalization(x, s, b) }",
            lambda r, n: {"x": _f32(r, 1, 32, n, 64), "s": _f32(r, 32), "b": _f32(r, 32)}, 32,
        ),
        "Trilu": Case(
            "g (float[n, n] x) => (float[n, n] y) { y = Trilu<upper = 0>(x) }",
            lambda r, n: {"x": _f32(r, n, n)}, 128,
        ),
        "OneHot": Case(
            "g (int64[n] x, int64 d, float[2] v) => (float[n, k] y) { y = OneHot(x, d, v) }",
            lambda r, n: {"x": r.integers(0, 64, n), "d": np.array(64),
                          "v": np.array([0, 1], np.float32)},
        ),
    }
)  # fmt: skip


def _with_constants(model: onnx.ModelProto, case: Case) -> onnx.ModelProto:
    """``model`` with the constants of ``case`` in place of those inputs."""
    values = case.feeds(np.random.default_rng(0), case.least)
    kept = [given for given in model.graph.input if given.name not in case.constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name in case.constants:
        model.graph.initializer.append(onnx.numpy_helper.from_array(values[name], name))
    return model


def _times(runs: Sequence[Callable[[], object]], clock: Callable[[], float]) -> list[float]:
    """Median seconds of each, run by turns."""
    for run in runs:
        run()
    start = clock()
    for run in runs:
        run()
    rounds = min(2000, max(5, int(SECONDS / max(1e-6, clock() - start))))
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, found, strict=True):
            start = clock()
            run()
            times.append(clock() - start)
    return [median(times) for times in found]


@click.command()
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="Regular expression that names must contain.")
def main(threads: int, only: str) -> None:
    """Milliseconds at 16 n, growth from n, and how many times as long the others take."""
    # Of one thread, the time that other work takes does not count.
    clock = time.process_time if threads == 1 else time.perf_counter
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    ratios: list[float] = []
    columns = f"{'':24}{'n':>7}{'16 n: ms':>10}{'growth':>8}"
    click.echo(f"{columns}   onnxruntime at n, 4 n, 16 n   NumPy or SciPy")
    for name, case in CASES.items():
        if not re.search(only, name):
            continue
        head = f'<ir_version: 8, opset_import: ["" : {case.opset}, "ai.onnx.ml" : 3]>'
        model = _with_constants(onnx.parser.parse_model(f"{head} {case.graph}"), case)
        net = modelcc.compile(model, threads=threads, cache=None)
        peer = onnxruntime.InferenceSession(model.SerializeToString(), settings)
        rows: list[list[float]] = []
        for size in (case.least, 4 * case.least, 16 * case.least):
            feeds = case.feeds(np.random.default_rng(0), size)
            feeds = {name: value for name, value in feeds.items() if name not in case.constants}
            runs = [partial(net.run, feeds), partial(peer.run, None, feeds)]
            if case.library is not None:
                runs.append(partial(case.library, feeds))
            rows.append(_times(runs, clock))
        own = [row[0] for row in rows]
        peers = [row[1] / row[0] for row in rows]
        ratios += peers
        others = "".join(f"{row[2] / row[0]:8.2f}" for row in rows if len(row) > 2)
        click.echo(
            f"{name:24}{case.least:7}{1e3 * own[-1]:10.3f}{own[-1] / own[0]:8.1f}   "
            f"{''.join(f'{ratio:8.2f}' for ratio in peers)}      {others}"
        )
    click.echo(f"geometric mean against onnxruntime: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
