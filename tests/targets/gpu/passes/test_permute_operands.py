"""Which images and filters are turned, and where."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.targets.gpu.passes.permute_operands import PermuteOperands

INPUTS = "%x: f16[2, 8, 6, 6], %v: f16[16, 8, 3, 3], %w: f16[16, 8, 3, 3]"
WINDOW = "[n < 2, p < 4, q < 4, o < 16] sum[c < 8, a < 3, b < 3]"
RESULT = "f32[2, 4, 4, 16]"


def program(image: str = "%x[n, c, p + a, q + b]", axes: str = WINDOW) -> TensorProgram:
    """Two convolutions of one image, between which a kernel makes the second one's filter."""
    body = f"{axes} f32({image})"
    return parse_tensor_program(
        f"""program @p({INPUTS}) -> (%y, %z) dims() {{
          kernel @one(%x: f16[2, 8, 6, 6], %v: f16[16, 8, 3, 3]) -> (%y: {RESULT}) {{
            %y: {RESULT} = {body} * f32(%v[o, c, a, b]) }}
          kernel @made(%w: f16[16, 8, 3, 3]) -> (%u: f16[16, 8, 3, 3]) {{
            %u: f16[16, 8, 3, 3] = [i < 16, j < 8, k < 3, l < 3] max(%w[i, j, k, l], 0.0:f16) }}
          kernel @two(%x: f16[2, 8, 6, 6], %u: f16[16, 8, 3, 3]) -> (%z: {RESULT}) {{
            %z: {RESULT} = {body} * f32(%u[o, c, a, b]) }} }}""",
        {},
    )


def turned(given: TensorProgram) -> list[str]:
    """The kernels and what each gives, once their meaning is found to be the same."""
    found = PermuteOperands()(given)
    verify_tensor_program(found)
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 8, 6, 6), "v": (16, 8, 3, 3), "w": (16, 8, 3, 3)}
    feeds = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    after, before = (run_program(p, feeds, {}) for p in (found, given))
    for name in given.outputs:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-4)
    return [item.outputs[0] for item in found.items if isinstance(item, Kernel)]


def test_what_a_call_gives_is_turned_once_and_first() -> None:
    """A filter that is made is turned behind that."""
    assert turned(program()) == ["x.turned", "v.turned", "y", "u", "u.turned", "z"]


def test_filters_lie_as_those_of_constants() -> None:
    """Results innermost; terms in the order of the image's dimensions."""
    found = PermuteOperands()(program())
    assert found.types["x.turned"].shape == (2, 6, 6, 8)
    assert found.types["v.turned"].shape == found.types["u.turned"].shape == (3, 3, 8, 16)


@pytest.mark.parametrize("channels", [8, 9])
def test_few_channels_stay_first(channels: int) -> None:
    found = PermuteOperands(channels)(program())
    assert ("x.turned" in found.types) == (channels == 8) and "v.turned" in found.types


def test_filters_of_few_windows_stay() -> None:
    """A copy would read as much as the product."""
    few = WINDOW.replace("p < 4, q < 4", "p < 1, q < 1").replace("n < 2", "n < 1")
    given = program(axes=few)
    assert not {"v.turned", "u.turned"} & PermuteOperands()(given).types.keys()


def test_products_of_matrices_stay() -> None:
    """No window moves over what they read."""
    given = program(
        "%x[n, c, p + 1, q + 1] * 2.0:f16", WINDOW.replace("a < 3, b < 3", "a < 1, b < 1")
    )
    assert turned(given) == ["y", "u", "z"]
