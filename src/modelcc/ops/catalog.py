"""The built-in dialect: every op of modelcc's vocabulary."""

from __future__ import annotations

from modelcc.ir.op import Dialect
from modelcc.ops import (
    activation,
    attention,
    control,
    conv,
    deform_conv,
    elementwise,
    forest,
    gather,
    grid_sample,
    matmul,
    nonzero,
    norm,
    pool,
    pool_indices,
    quant,
    quant_matmul,
    recurrent,
    reduce,
    resize,
    roi_align,
    runtime_size,
    shape,
    time_axis,
)

MCC = Dialect(
    "mcc",
    (
        *elementwise.OPS,
        *activation.OPS,
        *reduce.OPS,
        *shape.OPS,
        *gather.OPS,
        *matmul.OPS,
        *conv.OPS,
        *pool.OPS,
        *pool_indices.OPS,
        *norm.OPS,
        *nonzero.OPS,
        *attention.OPS,
        *resize.OPS,
        *runtime_size.OPS,
        *quant.OPS,
        *quant_matmul.OPS,
        *recurrent.OPS,
        *forest.OPS,
        *time_axis.OPS,
        *control.OPS,
        *roi_align.OPS,
        *grid_sample.OPS,
        *deform_conv.OPS,
    ),
)
