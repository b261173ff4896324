"""What ops say of how they compute on integers is true on their samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from modelcc.ir.op import Op
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import F32, Array, dtype_of
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes


def cases() -> Iterator[tuple[Op, QuantizedForm, tuple[Array | None, ...], Array]]:
    """Ops with their forms, and what they make of samples of f32."""
    for kind in MCC.ops:
        for sample in kind.samples if kind.has("quantize") else ():
            op = kind(**sample.attributes)
            form, operands = op.quantize(), arrays(op, sample)
            op = op.substitute(sizes(op, sample))
            if form is not None and operands[0] is not None and dtype_of(operands[0]) == F32:
                result = op.reference(*operands)
                assert isinstance(result, np.ndarray | np.generic)
                yield op, form, operands, np.asarray(result)


def test_movement_gives_back_elements() -> None:
    moving = [(op, operands, y) for op, form, operands, y in cases() if form.moves]
    for op, operands, y in moving:
        given = [x.reshape(-1) for x in operands if x is not None and dtype_of(x) == F32]
        strange = ~np.isin(y, np.concatenate([*given, np.zeros(1, np.float32)]))
        # The greatest of nothing is no element of it.
        assert not (strange & np.isfinite(y) & (np.abs(y) < 1e30)).any(), op
    assert len(moving) > 40


def test_weights_have_slices_along_the_result() -> None:
    """A slice of the weights that is doubled doubles a slice of a result without bias, no other."""
    found = 0
    for op, form, operands, y in cases():
        if form.weights is None or operands[form.weights].ndim < 2:  # type: ignore[union-attr]
            continue
        plain = [None if n == form.bias else x for n, x in enumerate(operands)]
        doubled, weights = list(plain), plain[form.weights]
        assert weights is not None
        factor = np.ones(weights.shape[form.axis], np.float32)
        factor[-1] = 2
        axis = form.axis % weights.ndim
        doubled[form.weights] = weights * factor.reshape(-1, *(1,) * (weights.ndim - axis - 1))
        before, after = np.asarray(op.reference(*plain)), np.asarray(op.reference(*doubled))
        if form.bias is None and len(operands) > 2:
            continue  # an addend that is scaled
        channel = form.channel % y.ndim
        wanted = before * factor.reshape(-1, *(1,) * (y.ndim - channel - 1))
        np.testing.assert_allclose(after, wanted, rtol=1e-4, atol=1e-5, err_msg=str(op))
        found += 1
    assert found > 15
