"""Packed constants: as ``pack`` says, whether asked for or written to memory."""

from typing import Any

import numpy as np
import pytest

from modelcc.ir.constant import Constant
from modelcc.ir.pack import pack
from modelcc.ir.packed_constant import PackedConstant
from modelcc.ir.types import Layout, Part

BLOCKED = Layout((Part(0, 4), Part(1), Part(0, 1, 4)), ((0, 0), (0, 0)))
ACROSS = Layout((Part(1, 2), Part(0), Part(1, 1, 2)), ((0, 0), (0, 0)))
ONE = Layout((Part(1, 8), Part(0, 2), Part(1, 1, 8), Part(0, 1, 2)), ((0, 0), (0, 0)))
HALO = Layout((Part(0), Part(1)), ((1, 1), (2, 0)))


@pytest.mark.parametrize("layout", [BLOCKED, ACROSS, ONE, HALO])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
def test_packed_constants(layout: Layout, dtype: Any) -> None:
    source = Constant(np.arange(30).reshape(6, 5).astype(dtype))
    constant = PackedConstant(source, layout)
    expected = pack(source.data, layout)
    target = np.full(constant.nbytes, 255, np.uint8)
    constant.write(target)
    assert target.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(constant.data, expected)
    assert constant.type == Constant(expected).type
    assert constant == Constant(expected) != source


@pytest.mark.parametrize("layout", [BLOCKED, ACROSS, ONE, HALO])
def test_large_constants_are_packed_piece_by_piece(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelcc.ir.packed_constant.SLAB", 50)
    source = Constant(np.arange(30, dtype=np.float32).reshape(6, 5))
    constant = PackedConstant(source, layout)
    target = np.full(constant.nbytes, 255, np.uint8)
    constant.write(target)
    assert target.tobytes() == pack(source.data, layout).tobytes()
