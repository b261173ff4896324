"""The main job on a real model: ResNet-50 from ONNX to native code, checked and timed.

The ``onnx`` wheel ships the architecture and its recorded output, but weights that are all the
same number.  So this runs the model twice: as it is, against the recorded output, and with random
weights, against onnx's own evaluator.  Needs no network and no C compiler.

    python examples/first_model.py [--model squeezenet] [--threads 2]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.report.progress import progress_bars

Array = np.ndarray
MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
TOLERANCE = 1e-4
RUNS = 20
IR_VERSION, OPSET = 8, 17
"""onnx's evaluator has today's meaning of softmax only, so the model is brought up to date."""


def main() -> int:
    """0 if every result agrees, else 1."""
    parser = argparse.ArgumentParser(description="Compile and check a model of the onnx package.")
    parser.add_argument("--model", default="resnet50", help="resnet50, squeezenet, shufflenet …")
    parser.add_argument("--threads", type=int, default=None, help="default: one per core")
    asked = parser.parse_args()
    path = MODELS / f"light_{asked.model}.onnx"
    if not path.is_file():
        known = sorted(p.stem.removeprefix("light_") for p in MODELS.glob("light_*.onnx"))
        print(f"there is no model {asked.model!r}; there is {', '.join(known)}", file=sys.stderr)
        return 2
    model = onnx.load(path)
    errors = [recorded(model, path, asked.threads), measured(model, asked.threads)]
    agrees = max(errors) <= TOLERANCE
    print(f"largest error {max(errors):.1e}, allowed {TOLERANCE:.0e}:", "ok" if agrees else "WRONG")
    return 0 if agrees else 1


def recorded(model: ModelProto, path: Path, threads: int | None) -> float:
    """Largest error against the output that the ONNX project recorded."""
    output = TensorProto.FromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    with progress_bars() as progress:
        net = modelcc.compile(model, threads=threads, progress=progress)
    shape = [extent for extent in net.inputs[0].shape if isinstance(extent, int)]
    error = relative_error(net(np.ones(shape, np.float32)), numpy_helper.to_array(output))
    print(f"{path.stem}: agrees with the recorded output to {error:.1e}")
    return error


def measured(model: ModelProto, threads: int | None) -> float:
    """Largest error with random weights against onnx's evaluator; prints what was compiled."""
    model = with_random_weights(model, np.random.default_rng(0))
    start = perf_counter()
    with progress_bars() as progress:
        net = modelcc.compile(model, threads=threads, cache=None, progress=progress)
    seconds = perf_counter() - start
    spec = net.inputs[0]
    shape = [extent for extent in spec.shape if isinstance(extent, int)]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    report = net.report()
    size = sum(numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
    print(f"  {len(model.graph.node)} nodes, {size / 2**20:.0f} MiB of weights, random")
    print(f"  {len(report.kernels)} kernels, {report.arena / 2**20:.1f} MiB for activations")
    print(f"  compiled in {seconds:.1f} s for {net.threads} thread(s)")
    print(f"  latency {1e3 * latency(net, x):.2f} ms, median of {RUNS} runs")
    (wanted,) = map(np.asarray, ReferenceEvaluator(model).run(None, {spec.name: x}))
    error = relative_error(net(x), wanted)
    print(f"  agrees with onnx's reference evaluator to {error:.1e}")
    return error


def latency(net: modelcc.Model, x: Array) -> float:
    """Seconds of one call."""
    times: list[float] = []
    for _ in range(RUNS + 3):
        start = perf_counter()
        net(x)
        times.append(perf_counter() - start)
    return median(times[3:])


def relative_error(got: Array, wanted: Array) -> float:
    """Largest error as a fraction of the largest value; infinity if shapes differ."""
    if got.shape != wanted.shape:
        return float("inf")
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def with_random_weights(model: ModelProto, rng: np.random.Generator) -> ModelProto:
    """The model with random numbers for the weights that ``ConstantOfShape`` nodes fill in."""
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    roles = {
        name: (node.op_type, position)
        for node in model.graph.node
        for position, name in enumerate(node.input)
    }
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            values = _weights(node, shapes, roles, rng)
            changed.graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        else:
            changed.graph.node.append(node)
    changed.ir_version = IR_VERSION
    return version_converter.convert_version(changed, OPSET)


def _weights(
    node: NodeProto,
    shapes: Mapping[str, Array],
    roles: Mapping[str, tuple[str, int]],
    rng: np.random.Generator,
) -> Array:
    """He-normal matrices and filters; scales and variances of batch norms are positive."""
    shape = shapes[node.input[0]]
    op, position = roles[node.output[0]]
    if op == "BatchNormalization" and position in (1, 4):
        low = 0.3 if position == 1 else 1.0  # small scales keep a deep network's values small
        return rng.uniform(low, 2 * low, shape).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 100
    return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)


if __name__ == "__main__":
    sys.exit(main())
