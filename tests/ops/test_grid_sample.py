"""GridSample against onnxruntime; what is the same for all channels is computed once."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.loop import Function, ScalarCall, VectorGather
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)
PADDINGS = ("zeros", "border", "reflection")
CASES = [
    ((2, 5, 9, 7), (2, 6, 11, 2), "linear", None),
    ((2, 5, 9, 7), (2, 6, 11, 2), "nearest", None),
    ((1, 3, 9, 16), (1, 5, 8, 2), "cubic", None),
    ((1, 4, 12, 5), (1, 12, 5, 2), "linear", ("n,4,h,w", "n,k,l,2", "n,4,k,l")),
    ((1, 2, 5, 6, 7), (1, 3, 4, 10, 3), "linear", None),
    ((1, 2, 5, 6, 7), (1, 3, 4, 10, 3), "nearest", None),
    ((2, 1, 1, 2), (2, 3, 3, 2), "linear", None),
]


def sampled(
    x: tuple[int, ...], g: tuple[int, ...], attributes: str, names: tuple[str, ...] | None
) -> ModelProto:
    shapes = names or tuple(",".join(map(str, s)) for s in (x, g, (*x[:2], *g[1:-1])))
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]> g (float[{shapes[0]}] x, float[{shapes[1]}] g)'
        f" => (float[{shapes[2]}] y) {{ y = GridSample<{attributes}>(x, g) }}"
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnxruntime(
    case: tuple[tuple[int, ...], tuple[int, ...], str, tuple[str, ...] | None],
) -> None:
    x, g, mode, names = case
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal(x).astype(np.float32),
        "g": rng.uniform(-1.3, 1.3, g).astype(np.float32),
    }
    for padding, align in product(PADDINGS, (0, 1)):
        if mode == "cubic" and padding == "border":
            continue  # onnxruntime departs from the standard's evaluator there
        attributes = f'mode="{mode}", padding_mode="{padding}", align_corners={align}'
        model = sampled(x, g, attributes, names)
        found = modelcc.compile(model, options=OPTIONS, cache=None)(feeds)
        np.testing.assert_allclose(found, run_onnxruntime(model, feeds)["y"], atol=2e-5)


def calls(function: Function, name: str) -> bool:
    return any(
        isinstance(e, ScalarCall) and e.function == name
        for s in statements(function.body)
        for whole in statement_expressions(s)
        for e in walk(whole)
    )


def gathers(function: Function) -> bool:
    return any(
        isinstance(e, VectorGather)
        for s in statements(function.body)
        for whole in statement_expressions(s)
        for e in walk(whole)
    )


def test_places_and_weights_are_those_of_all_channels() -> None:
    """What reads the image has nothing to round: it gathers vectors of pixels."""
    model = sampled((1, 8, 32, 16), (1, 32, 16, 2), 'mode="linear"', None)
    options = chosen_options(threads=1)
    stages = before_block(pipeline(target_of(options), options, BuildConfig()), "loop")
    program = run_stages(stages, model)
    kernels = program.functions
    reading = [f for f in kernels if gathers(f)]
    assert len(reading) == 1 and not calls(reading[0], "floor")


def test_an_image_without_pixels_is_refused() -> None:
    model = sampled((1, 1, 1, 1), (1, 1, 1, 2), 'mode="nearest"', ("1,1,h,w", "1,k,2,2", "1,1,k,2"))
    net = modelcc.compile(model, options=OPTIONS, cache=None)
    with pytest.raises(modelcc.RunError, match="pixel"):
        net(x=np.zeros((1, 1, 0, 3), np.float32), g=np.zeros((1, 4, 2, 2), np.float32))
    empty = net(x=np.zeros((1, 1, 0, 3), np.float32), g=np.zeros((1, 0, 2, 2), np.float32))
    assert empty.shape == (1, 1, 0, 2)
