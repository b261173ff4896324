"""Models as folders of C: written, built with a compiler, run, and compared."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from modelcc.driver import target_of
from modelcc.emit.delivery import deliver
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.targets.base import BuildConfig
from modelcc.targets.c.delivery.facts import DeliveryRequest, WeightsForm
from modelcc.targets.c.dialect import GNU
from modelcc.targets.c.toolchain import semantics

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = tuple(
    name for name in ("gcc", "clang", "python-zig cc") if shutil.which(name.split()[0])
)

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")


def parsed(text: str, arrays: Mapping[str, Array] | None = None, version: int = 18) -> ModelProto:
    """A model in ONNX's text form, with initializers."""
    model = onnx.parser.parse_model(HEAD + text)
    model.opset_import[0].version = version
    for name, array in (arrays or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def options(**changes: object) -> Options:
    """For C that runs on any processor, on one thread."""
    return Options(**{"target": "c", "cpu": "portable", "threads": 1, **changes})  # type: ignore


@dataclass(frozen=True)
class Folder:
    """A delivered model."""

    path: Path
    name: str

    def build(
        self, compiler: str = COMPILERS[0] if COMPILERS else "", flags: Sequence[str] = ()
    ) -> Path:
        """The example, built from all C files of the folder."""
        level = () if any(f.startswith("-O") for f in flags) else ("-O1",)
        program = self.path / "example"
        sources = sorted(path.name for path in self.path.glob("*.c"))
        command = [*compiler.split(), *semantics(GNU), *level, *WARNINGS, *flags, *sources]
        run([*command, "-o", program.name, "-lm", "-pthread"], self.path)
        return program

    def outputs(
        self,
        feeds: Mapping[str, Array],
        likes: Mapping[str, Array],
        *words: str,
        program: Path | None = None,
    ) -> dict[str, Array]:
        """What the example computes; ``likes`` tells types and shapes of the outputs."""
        words = tuple(words)
        for number, (name, array) in enumerate(feeds.items()):
            array.tofile(self.path / f"in{number}.bin")
            words += ("-i", f"{name}=in{number}.bin")
        for number, name in enumerate(likes):
            words += ("-o", f"{name}=out{number}.bin")
        run([str(program or self.path / "example"), *words], self.path)
        return {
            name: np.fromfile(self.path / f"out{number}.bin", like.dtype).reshape(like.shape)
            for number, (name, like) in enumerate(likes.items())
        }


def run(command: Sequence[str], place: Path) -> str:
    """What a command prints; an assertion if it fails."""
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def delivered(
    model: ModelProto | Graph,
    place: Path,
    name: str = "net",
    weights: WeightsForm = "bin",
    settings: Options | None = None,
) -> Folder:
    """``model`` as a folder."""
    chosen = settings or options()
    request = DeliveryRequest(name, weights, "net.onnx", "0")
    place.mkdir(exist_ok=True)
    for file in deliver(model, None, request, target_of(chosen), chosen, BuildConfig()).files:
        (place / file.name).write_bytes(file.contents)
    return Folder(place, name)


# --- models


def _random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def conv_net() -> ModelProto:
    arrays = {"w0": _random(12, 3, 3, 3), "b0": _random(12), "w1": _random(12, 1, 3, 3),
              "w2": _random(12, 5)}  # fmt: skip
    return parsed(
        """conv_net (float[1, 3, 19, 17] image) => (float[1, 5] scores) {
          c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (image, w0, b0)
          r = Relu (c)
          d = Conv <pads = [1, 1, 1, 1], group = 12> (r, w1)
          p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (d)
          g = GlobalAveragePool (p)
          f = Flatten (g)
          scores = MatMul (f, w2)
        }""",
        arrays,
    )


def dynamic_image() -> ModelProto:
    return parsed(
        """image (float[batch, 3, H, W] x) => (float[batch, 8, P, Q] y) {
          c = Conv <pads = [1, 1, 1, 1]> (x, w)
          y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
        }""",
        {"w": _random(8, 3, 3, 3)},
    )


def attention() -> ModelProto:
    return parsed(
        """attention (int64[batch, seq] ids) => (float[batch, seq, 16] y) {
          e = Gather (table, ids)
          q = MatMul (e, wq)
          k = MatMul (e, wk)
          kt = Transpose <perm = [0, 2, 1]> (k)
          s = MatMul (q, kt)
          p = Softmax <axis = -1> (s)
          a = MatMul (p, e)
          g = Erf (a)
          t = Tanh (g)
          y = Add (t, e)
        }""",
        {"table": _random(30, 16), "wq": _random(16, 16), "wk": _random(16, 16, seed=1)},
    )


def control() -> ModelProto:
    """``for i < n: x = 0.5 * x; x = sum(x) > 0 ? x + 1 : x - 1``."""
    return parsed(
        """control (float[4] x, int64 n) => (float[4] y) {
          yes = Constant <value = bool {1}> ()
          y = Loop (n, yes, x) <body = step (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
            d = Identity (c)
            half = Constant <value = float {0.5}> ()
            h = Mul (s, half)
            total = ReduceSum <keepdims = 0> (h)
            zero = Constant <value = float {0.0}> ()
            one = Constant <value = float {1.0}> ()
            up = Greater (total, zero)
            t = If (up) <
              then_branch = more () => (float[4] a) { a = Add (h, one) },
              else_branch = less () => (float[4] b) { b = Sub (h, one) }
            >
          }>
        }"""
    )


def run_time_sizes() -> ModelProto:
    """Outputs of sizes that depend on data; one is called as the extents of another."""
    return parsed(
        """found (float[n] x) => (int64[1, m] where, float[m] y, float[n] y_dims) {
          where = NonZero (x)
          flat = Transpose (where)
          y = GatherND (x, flat)
          y_dims = Relu (x)
        }"""
    )


def given_shape() -> ModelProto:
    """A shape that the caller gives, and a constant without elements that nothing reads."""
    return parsed(
        """shaped (float[n, 4] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }"""
    )


def quantised() -> ModelProto:
    rng = np.random.default_rng(0)
    arrays = {
        "xs": np.array(0.05, np.float32), "xz": np.array(128, np.uint8),
        "w": rng.integers(-127, 128, (24, 16)).astype(np.int8),
        "ws": np.array(0.02, np.float32), "wz": np.array(0, np.int8),
        "ys": np.array(0.1, np.float32), "yz": np.array(120, np.uint8),
    }  # fmt: skip
    return parsed(
        """quantised (uint8[batch, 24] x) => (uint8[batch, 16] y) {
          y = QLinearMatMul (x, xs, xz, w, ws, wz, ys, yz)
        }""",
        arrays,
    )


def halves() -> ModelProto:
    return parsed(
        """halves (float16[2, 9] x, bfloat16[9] b) => (float16[2, 9] y, bfloat16[2, 9] z) {
          f = Cast <to = 1> (x)
          g = Cast <to = 1> (b)
          s = Add (f, g)
          y = Cast <to = 10> (s)
          z = Cast <to = 16> (s)
        }"""
    )


def mlp(rows: int | str = "batch", seed: int = 0) -> ModelProto:
    arrays = {"w0": _random(6, 20, seed=seed), "b0": _random(20, seed=seed),
              "w1": _random(20, 3, seed=seed)}  # fmt: skip
    return parsed(
        f"""mlp (float[{rows}, 6] x) => (float[{rows}, 3] y) {{
          h = Gemm (x, w0, b0)
          r = Relu (h)
          y = MatMul (r, w1)
        }}""",
        arrays,
    )


def no_weights() -> ModelProto:
    """Two outputs, names that neither C nor C++ can spell, two that are spelled alike."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["class", "a/b"], ["a.b"], "add */ /*"),
        helper.make_node("Mul", ["class", "a/b"], ["1st"], "mul"),
    ]
    inputs = [value(n, TensorProto.FLOAT, [5]) for n in ("class", "a/b")]
    outputs = [value(n, TensorProto.FLOAT, [5]) for n in ("a.b", "1st")]
    graph = helper.make_graph(nodes, "main-graph/1", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


ODD_NAMES = ("new\nline", "??/", "a\\", "\u202eright", "a\x1b[1m*/", "INT64_MAX", "EOF", 'q"', "I")
"""Of inputs, nodes, dimensions and outputs."""


def odd_names() -> ModelProto:
    """Inputs of which each is added to the next."""
    value = helper.make_tensor_value_info
    names = ODD_NAMES
    following = (*names[1:], names[0])
    nodes = [
        helper.make_node("Add", [a, b], [f"{a}{b}"], f"pool/sizes {b}/{a}")
        for a, b in zip(names, following, strict=True)
    ]
    inputs = [value(n, TensorProto.FLOAT, [names[0]]) for n in names]
    outputs = [value(node.output[0], TensorProto.FLOAT, [names[0]]) for node in nodes]
    graph = helper.make_graph(nodes, names[1], inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def no_inputs() -> ModelProto:
    return parsed("none () => (float[2] y) { y = Constant <value = float[2] {1.0, 2.5}> () }")


def powers() -> ModelProto:
    """Vectors of f64 beside those of f32, wider than a register."""
    return parsed(
        """powers (float[37] x, float[37] y) => (float[37] z, float[37] c) {
          a = Abs (x)
          z = Pow (a, y)
          c = Cos (y)
        }"""
    )


def partly_used() -> ModelProto:
    """Blocks of four rows transposed of which three are wanted, axes of one index."""
    return parsed(
        """partly (float[2, 10, 4, 5, 3] x, float[1, 1, 3, 2] image, float[1, 2, 4, 2] grid)
             => (float[2, 3, 10, 4, 5] y, float[1, 1, 2, 4] z) {
          y = Transpose <perm = [0, 4, 1, 2, 3]> (x)
          z = GridSample <mode = "linear"> (image, grid)
        }""",
        version=20,
    )


def large(rows: int = 64) -> ModelProto:
    """Enough work for several threads."""
    return parsed(
        f"""large (float[{rows}, 256] x) => (float[{rows}, 256] y) {{
          h = MatMul (x, w)
          y = Relu (h)
        }}""",
        {"w": _random(256, 256)},
    )


def _floats(*shape: int) -> Array:
    return _random(*shape, seed=5)


@dataclass(frozen=True)
class Example:
    """A model, inputs for it, and the dimensions that go with them."""

    model: ModelProto
    feeds: Mapping[str, Array]
    words: tuple[str, ...] = ()


def examples() -> dict[str, Example]:
    """Models of every kind, by name."""
    rng = np.random.default_rng(1)
    f16, bf16 = np.float16, np.dtype("bfloat16")
    sparse = np.array([0, 1, 0, -2.5, 3, 0, 4], np.float32)
    bytes_ = rng.integers(0, 256, (3, 24)).astype(np.uint8)
    image = ("-d", "batch=2", "-d", "H=9", "-d", "W=13")
    return {
        "mlp": Example(mlp(), {"x": _floats(5, 6)}, ("-d", "batch=5")),
        "static": Example(mlp(4), {"x": _floats(4, 6)}),
        "conv_net": Example(conv_net(), {"image": _floats(1, 3, 19, 17)}),
        "dynamic_image": Example(dynamic_image(), {"x": _floats(2, 3, 9, 13)}, image),
        "attention": Example(attention(), {"ids": rng.integers(0, 30, (2, 7))},
                             ("-d", "batch=2", "-d", "seq=7")),
        "control": Example(control(), {"x": _floats(4), "n": np.array(5, np.int64)}),
        "run_time_sizes": Example(run_time_sizes(), {"x": sparse}, ("-d", "n=7")),
        "given_shape": Example(given_shape(), {"x": _floats(3, 4), "s": np.array([2, 6])},
                               ("-d", "n=3")),
        "quantised": Example(quantised(), {"x": bytes_}, ("-d", "batch=3")),
        "halves": Example(halves(), {"x": _floats(2, 9).astype(f16), "b": _floats(9).astype(bf16)}),
        "no_weights": Example(no_weights(), {"class": _floats(5), "a/b": _floats(1, 5)[0]}),
        "odd_names": Example(odd_names(), {name: _floats(5) for name in ODD_NAMES},
                             ("-d", f"{ODD_NAMES[0]}=5")),
        "no_inputs": Example(no_inputs(), {}),
        "powers": Example(powers(), {"x": _floats(37), "y": _floats(1, 37)[0]}),
        "partly_used": Example(partly_used(), {"x": _floats(2, 10, 4, 5, 3),
                                               "image": _floats(1, 1, 3, 2),
                                               "grid": _floats(1, 2, 4, 2) / 3}),
        "large": Example(large(), {"x": _floats(64, 256)}),
    }  # fmt: skip
