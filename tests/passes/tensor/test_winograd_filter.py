"""Transformed filters are made when they are asked for, piece by piece."""

import numpy as np
import pytest

from modelcc.ir.constant import Constant
from modelcc.ir.packed_constant import PackedConstant
from modelcc.ir.types import Layout, Part
from modelcc.passes.tensor.winograd_filter import TransformedFilter
from modelcc.passes.tensor.winograd_transforms import transform_filter


@pytest.mark.parametrize("slab", [1, 700, 1 << 20])
@pytest.mark.parametrize("m", [2, 4])
def test_elements_are_those_of_the_transform(
    m: int, slab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelcc.passes.tensor.winograd_filter.SLAB", slab)
    filters = np.random.default_rng(0).standard_normal((5, 4, 3, 3)).astype(np.float32)
    made = TransformedFilter(Constant(filters), m)
    expected = transform_filter(m, filters)
    assert made.type == Constant(expected).type and made.nbytes == expected.nbytes
    np.testing.assert_allclose(made.data, expected, rtol=1e-6, atol=1e-7)
    target = np.full(made.nbytes, 255, np.uint8)
    made.write(target)
    assert target.tobytes() == made.data.tobytes()


def test_packing_keeps_no_transformed_filter() -> None:
    filters = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    source = TransformedFilter(Constant(filters), 2)
    layout = Layout((Part(0), Part(1, 4), Part(2), Part(1, 1, 4)), ((0, 0), (0, 0), (0, 0)))
    packed = PackedConstant(source, layout)
    target = np.full(packed.nbytes, 255, np.uint8)
    packed.write(target)
    assert target.tobytes() == packed.data.tobytes()
    kept = [v for v in vars(packed).values() if isinstance(v, np.ndarray)]
    assert kept == [] and packed.nbytes == source.nbytes


@pytest.mark.parametrize(("axis", "start", "stop"), [(0, 3, 9), (1, 2, 4), (1, 4, 99), (2, 1, 3)])
def test_parts_of_a_filter_are_those_of_the_whole(axis: int, start: int, stop: int) -> None:
    w = np.random.default_rng(0).standard_normal((7, 5, 3, 3)).astype(np.float32)
    whole = TransformedFilter(Constant(w), 4)
    expected = whole.data[(*(slice(None),) * axis, slice(start, stop))]
    np.testing.assert_array_equal(whole.part(axis, start, stop), expected)


@pytest.mark.parametrize(("axis", "start", "stop"), [(0, 3, 9), (1, 1, 3), (2, 2, 4), (2, 4, 99)])
def test_outputs_may_be_last(axis: int, start: int, stop: int) -> None:
    w = np.random.default_rng(0).standard_normal((7, 5, 3, 3)).astype(np.float32)
    turned = TransformedFilter(Constant(w), 2, outputs_last=True)
    expected = TransformedFilter(Constant(w), 2).data.swapaxes(1, 2)
    assert turned.shape == expected.shape
    np.testing.assert_array_equal(turned.data, expected)
    part = expected[(*(slice(None),) * axis, slice(start, stop))]
    np.testing.assert_array_equal(turned.part(axis, start, stop), part)
