"""Sampling, pooling of regions, resizing and padding of images."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from benchmarks.irregular.case import Case, Feeds, f32


def _regions(op: str, channels: int, height: int, width: int, least: int) -> Case:
    """An image, n boxes of up to 20 x 20 pixels in it, 7 x 7 bins."""
    align = op == "RoiAlign"
    inputs = "float[n, 4] b, int64[n] i" if align else "float[n, 5] b"
    bins = "output_height = 7, output_width = 7" if align else "pooled_shape = [7, 7]"
    body = f"y = {op}<{bins}>({'x, b, i' if align else 'x, b'})"
    image = f"float[1, {channels}, {height}, {width}] x"
    graph = f"g ({image}, {inputs}) => (float[n, {channels}, 7, 7] y) {{ {body} }}"

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        corner = (np.array([width, height], np.float32) - 22) * f32(random, n, 2)
        boxes = np.concatenate([corner, corner + 20 * f32(random, n, 2)], 1)
        x = f32(random, 1, channels, height, width)
        numbers = np.zeros(n, np.int64)
        if align:
            return {"x": x, "b": boxes, "i": numbers}
        return {"x": x, "b": np.hstack([numbers.astype(np.float32)[:, None], boxes])}

    return Case(graph, feeds, least)


def _unpool() -> Case:
    graph = (
        "g (float[1, 16, n, 16] x, int64[1, 16, n, 16] i) => (float[1, 16, h, 32] y) "
        "{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i) }"
    )

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        corners = np.arange(16 * n)[:, None] * 64 + 2 * np.arange(16)
        steps = random.integers(0, 2, (2, 16 * n, 16))
        places = corners + 32 * steps[0] + steps[1]
        return {"x": f32(random, 1, 16, n, 16), "i": places.reshape(1, 16, n, 16)}

    return Case(graph, feeds, 64)


def _deformable(groups: int, constants: tuple[str, ...] = ("w", "b")) -> Case:
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
            "x": f32(random, 1, 32, n, 16), "w": f32(fixed, *weights), "b": f32(fixed, 32),
            "o": 4 * f32(random, 1, 18 * groups, n, 16), "m": f32(random, 1, 9 * groups, n, 16),
        }  # fmt: skip

    return Case(graph, feeds, 64, 19, constants=constants)


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "GridSample": Case(
            "g (float[1, 8, n, 16] x, float[1, n, 16, 2] i) => (float[1, 8, n, 16] y) "
            "{ y = GridSample(x, i) }",
            lambda r, n: {"x": f32(r, 1, 8, n, 16), "i": f32(r, 1, n, 16, 2)},
        ),
        **{
            f"{op}{name}": _regions(op, *sizes)
            for op in ("RoiAlign", "MaxRoiPool")
            for name, sizes in (("", (64, 50, 50, 64)), (" few boxes", (256, 200, 304, 1)))
        },
        "MaxUnpool": _unpool(),
        "Resize cubic": Case(
            'g (float[1, 4, n, 16] x, float[4] s) => (float[a, b, c, d] y) '
            '{ y = Resize<mode = "cubic">(x, , s) }',
            lambda r, n: {"x": f32(r, 1, 4, n, 16), "s": np.array([1, 1, 2, 2], np.float32)}, 64,
        ),
        **{
            f"Resize {name}": Case(
                f"g (float[1, 8, n, 32] x, float[4] s) => (float[a, b, c, d] y) "
                f'{{ y = Resize<mode = "{mode}", antialias = {antialias}>(x, , s) }}',
                lambda r, n, by=by: {
                    "x": f32(r, 1, 8, n, 32), "s": np.array([1, 1, by, by], np.float32)
                }, 64,
            )
            for name, mode, antialias, by in (
                ("linear", "linear", 0, 2), ("nearest", "nearest", 0, 2),
                ("antialias", "linear", 1, 0.5),
            )
        },
        **{
            f"Resize {mode} {by}": Case(
                "g (float[1, 8, h, w] x) => (float[a, b, c, d] y) { s = Constant<value_floats = "
                f'[1.0, 1.0, {by}, {by}]>() y = Resize<mode = "{mode}">(x, , s) }}',
                lambda r, n: {"x": f32(r, 1, 8, n, 32)}, 64,
            )
            for mode in ("linear", "nearest") for by in (0.61, 1.37, 2.5)
        },
        "Resize doubled": Case(
            "g (float[1, 8, h, w] x) => (float[a, b, c, d] y) { s = Constant<value_floats = "
            '[1.0, 1.0, 2.0, 2.0]>() y = Resize<coordinate_transformation_mode = "asymmetric", '
            'nearest_mode = "floor">(x, , s) }',
            lambda r, n: {"x": f32(r, 1, 8, n, 32)}, 64,
        ),
        "Resize to sizes": Case(
            "g (float[1, 8, n, 32] x, int64[4] s) => (float[a, b, c, d] y) { y = Resize<"
            'mode = "linear", coordinate_transformation_mode = "align_corners">(x, , , s) }',
            lambda r, n: {"x": f32(r, 1, 8, n, 32), "s": np.array([1, 8, n // 2 + 5, 45])}, 64,
        ),
        **{
            f"Pad {mode}": Case(
                "g (float[1, 8, n, 32] x, int64[8] p) => (float[a, b, c, d] y) "
                f'{{ y = Pad<mode = "{mode}">(x, p) }}',
                lambda r, n: {"x": f32(r, 1, 8, n, 32), "p": np.array([0, 0, 3, 3] * 2)}, 64,
            )
            for mode in ("constant", "reflect")
        },
        "Pad given, rows whole": Case(
            "g (float[1, n, w, 16] x, int64[8] p) => (float[a, b, c, d] y) { y = Pad(x, p) }",
            lambda r, n: {"x": f32(r, 1, n, 64, 16), "p": np.array([0, 1, 1, 0] * 2)}, 16,
        ),
        **{
            f"Pad {mode} {name}": Case(
                f"g (float[{shape}] x) => (float[{', '.join('abcd'[:rank])}] y) {{ "
                f'p = Constant<value_ints = {pads}>() y = Pad<mode = "{mode}">(x, p) }}',
                feeds, 64,
            )
            for mode in ("constant", "reflect", "edge")
            for name, shape, rank, pads, feeds in (
                ("planes", "b, c, h, w", 4, [0, 0, 3, 3] * 2,
                 lambda r, n: {"x": f32(r, 1, 8, n, 32)}),
                ("pixels", "b, h, w, 3", 4, [0, 3, 3, 0] * 2,
                 lambda r, n: {"x": f32(r, 1, n, 64, 3)}),
                ("signal", "b, n", 2, [0, 200] * 2, lambda r, n: {"x": f32(r, 2, 64 * n)}),
            )
        },
        "DeformConv": _deformable(1),
        "DeformConv groups": _deformable(4),
        "DeformConv weights": _deformable(4, constants=()),
        "InstanceNormalization": Case(
            "g (float[1, 32, n, 64] x, float[32] s, float[32] b) => (float[1, 32, n, 64] y) "
            "{ y = InstanceNormalization(x, s, b) }",
            lambda r, n: {"x": f32(r, 1, 32, n, 64), "s": f32(r, 32), "b": f32(r, 32)}, 32,
        ),
    }
)  # fmt: skip
