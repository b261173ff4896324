"""Every second, third or fourth element from loads of neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.targets.llvm.interleaved import shuffles, starts


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_shuffles_pick_every_element(lanes: int, stride: int) -> None:
    data = np.arange((lanes - 1) * stride + 1)  # nothing after the last element may be read
    loads = [data[start : start + lanes] for start in starts(lanes, stride)]
    assert all(len(load) == lanes for load in loads)
    picked = loads[0]
    for load, places in zip(loads[1:], shuffles(lanes, stride), strict=True):
        both = np.concatenate([picked, load, [-1]])
        picked = both[list(places)]
    np.testing.assert_array_equal(picked, data[::stride])
