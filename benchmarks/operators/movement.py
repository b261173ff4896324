"""Data movement and elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from benchmarks.operators.case import Case, one, weights

IMAGE = (1, 64, 56, 56)


def _integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _transposes() -> Iterator[Case]:
    for shape, order in (
        ((512, 512), (1, 0)), ((100, 333), (1, 0)), ((64, 3), (1, 0)), ((3, 5000), (1, 0)),
        ((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 56, 56, 64), (0, 3, 1, 2)),
        ((1, 3, 224, 224), (0, 2, 3, 1)), ((1, 224, 224, 3), (0, 3, 1, 2)),
        ((1, 128, 12, 64), (0, 2, 1, 3)), ((1, 12, 128, 64), (0, 1, 3, 2)),
        ((8, 16, 32, 64), (3, 2, 1, 0)), ((8, 64, 8, 64), (0, 2, 1, 3)),
        ((1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)), ((64, 197, 3), (2, 0, 1)),
    ):  # fmt: skip
        name = "x".join(map(str, shape)) + "_" + "".join(map(str, order))
        yield one("transpose", name, "Transpose", [shape], perm=order)


def _slices() -> Iterator[Case]:
    half = (1, 32, 56, 56)
    yield one("move", "concat_channels", "Concat", [half, half], axis=1)
    yield one("move", "concat_last", "Concat", [(64, 50), (64, 30), (64, 7)], axis=1)
    yield one("move", "concat_first", "Concat", [(64, 50), (30, 50)], axis=0)
    yield one("move", "split_channels", "Split", [IMAGE], [_integers(32, 32)], outputs=2, axis=1)
    yield one("move", "split_last", "Split", [(128, 96)], [_integers(32, 32, 32)], outputs=3,
              axis=1)  # fmt: skip
    ends = [_integers(1, 1), _integers(55, 55), _integers(2, 3)]
    yield one("move", "slice_crop", "Slice", [IMAGE], ends)
    yield one("move", "slice_step2", "Slice", [IMAGE],
              [_integers(0, 0), _integers(56, 56), _integers(2, 3), _integers(2, 2)])  # fmt: skip
    yield one("move", "slice_reverse", "Slice", [(64, 1000)],
              [_integers(-1), _integers(-(2**31)), _integers(1), _integers(-1)])  # fmt: skip
    pads = _integers(0, 0, 1, 1, 0, 0, 1, 1)
    for mode in ("constant", "reflect", "edge"):
        yield one("move", f"pad_{mode}", "Pad", [IMAGE], [pads], mode=mode)
    yield one("move", "gather_rows", "Gather", [(1000, 256)], [np.arange(0, 256, 2)], axis=0)
    yield one("move", "gather_last", "Gather", [(256, 1000)], [np.arange(0, 999, 5)], axis=1)
    yield one("move", "expand", "Expand", [(1, 64, 1, 1)], [_integers(*IMAGE)])
    yield one("move", "tile", "Tile", [(1, 64, 28, 28)], [_integers(1, 1, 2, 2)])
    yield one("move", "depth_to_space", "DepthToSpace", [IMAGE], blocksize=2)
    yield one("move", "depth_to_space_crd", "DepthToSpace", [IMAGE], blocksize=2, mode="CRD")
    yield one("move", "space_to_depth", "SpaceToDepth", [IMAGE], blocksize=2)
    yield _shuffle()


def _shuffle() -> Case:
    """The channel shuffle of ShuffleNet."""
    nodes: tuple[NodeProto, ...] = (
        helper.make_node("Reshape", ["x0", "split"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["b", "shape"], ["y"]),
    )
    constants = {"split": _integers(1, 2, 32, 56, 56), "shape": _integers(*IMAGE)}
    return Case("move", "channel_shuffle", (IMAGE,), nodes, constants)


def _resizes() -> Iterator[Case]:
    for name, shape, target in (
        ("2x_64_28", (1, 64, 28, 28), (1, 64, 56, 56)),
        ("8x_21_28", (1, 21, 28, 28), (1, 21, 224, 224)),
        ("down_3_224", (1, 3, 224, 224), (1, 3, 100, 100)),
    ):
        for mode, where in (
            ("nearest", "asymmetric"),
            ("linear", "half_pixel"),
            ("linear", "align_corners"),
            ("cubic", "half_pixel"),
        ):
            extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
            node = helper.make_node(
                "Resize", ["x0", "", "", "sizes"], ["y"], mode=mode,
                coordinate_transformation_mode=where, **extra,
            )  # fmt: skip
            label = f"{mode}_{where}_{name}"
            yield Case("resize", label, (shape,), (node,), {"sizes": _integers(*target)})


def _elementwise() -> Iterator[Case]:
    for operator in (
        "Relu", "Exp", "Tanh", "Sigmoid", "Erf", "Sqrt", "Log", "Softplus", "HardSwish", "Elu",
        "Abs", "Sin", "Reciprocal", "Floor",
    ):  # fmt: skip
        yield one("elementwise", operator.lower(), operator, [IMAGE])
    yield one("elementwise", "relu_small", "Relu", [(1, 1000)])
    yield one("elementwise", "leaky_relu", "LeakyRelu", [IMAGE])
    yield one("elementwise", "prelu", "PRelu", [IMAGE], [weights((64, 1, 1))])
    yield one("elementwise", "pow2", "Pow", [IMAGE], [np.array(2, np.float32)])
    yield one("elementwise", "pow_half", "Pow", [IMAGE], [np.array(0.5, np.float32)])
    yield one("elementwise", "add_same", "Add", [IMAGE, IMAGE])
    yield one("elementwise", "add_channel", "Add", [IMAGE, (1, 64, 1, 1)])
    yield one("elementwise", "mul_last", "Mul", [(1, 197, 768), (768,)])
    yield one("elementwise", "mul_gate", "Mul", [IMAGE, (1, 1, 56, 56)])
    yield one("elementwise", "add_outer", "Add", [(512, 1), (1, 512)])
    yield one("elementwise", "div_rows", "Div", [(512, 512), (512, 1)])
    yield one("elementwise", "add_hwc", "Add", [(56, 56, 3), (3,)])
    yield one("elementwise", "max_3", "Max", [IMAGE, IMAGE, IMAGE])
    yield one("elementwise", "clip", "Clip", [IMAGE],
              [np.array(0, np.float32), np.array(6, np.float32)])  # fmt: skip
    yield _chain("gelu", (("Div", "r"), ("Erf",), ("Add", "i"), ("Mul", "x0"), ("Mul", "h")))
    yield _chain("swish", (("Sigmoid",), ("Mul", "x0")))
    yield _chain("mish", (("Softplus",), ("Tanh",), ("Mul", "x0")))
    yield _chain("scale_shift_clip", (("Mul", "c"), ("Add", "c"), ("Relu",)))


def _chain(name: str, steps: tuple[tuple[str, ...], ...]) -> Case:
    constants = {
        "r": np.array(np.sqrt(2), np.float32),
        "i": np.array(1, np.float32),
        "h": np.array(0.5, np.float32),
        "c": weights((64, 1, 1)),
    }
    nodes: list[NodeProto] = []
    value = "x0"
    for n, (operator, *others) in enumerate(steps):
        nodes.append(helper.make_node(operator, [value, *others], [f"y{n}"]))
        value = f"y{n}"
    used = {name for step in steps for name in step[1:]}
    kept = {n: c for n, c in constants.items() if n in used}
    return Case("elementwise", name, (IMAGE,), tuple(nodes), kept)


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _transposes()
    yield from _slices()
    yield from _resizes()
    yield from _elementwise()
