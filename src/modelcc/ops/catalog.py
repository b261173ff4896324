"""The built-in dialect: every op of modelcc's vocabulary."""

from __future__ import annotations

from modelcc.ir.op import Dialect
from modelcc.ops import (
    activation,
    attention,
    attention_gradients,
    boxes,
    columns,
    control,
    conv,
    cumulative,
    deform_conv,
    differentiation,
    eigenvalues,
    elementwise,
    feature_keys,
    fixed_point,
    fixed_point_functions,
    fixed_point_softmax,
    forest,
    fourier,
    gather,
    grid_sample,
    hardmax,
    late_tile,
    linear_algebra,
    lp_pool,
    matmul,
    nonzero,
    norm,
    orthogonal,
    packed_matmul,
    padding,
    pool,
    quant,
    quant_matmul,
    recurrent,
    reduce,
    resize,
    roi_align,
    roi_pool,
    runtime_size,
    shape,
    suppression,
    time_axis,
    top_k,
    unique,
)

FAMILIES = (
    *(elementwise, activation, reduce, cumulative, shape, padding, gather, matmul, conv, pool),
    lp_pool,
    *(norm, nonzero, fourier, attention, attention_gradients, hardmax, late_tile, resize),
    *(runtime_size, top_k, unique, suppression, quant, fixed_point, packed_matmul, quant_matmul),
    *(
        fixed_point_functions,
        fixed_point_softmax,
        recurrent,
        feature_keys,
        forest,
        time_axis,
        control,
        boxes,
        roi_align,
    ),
    *(roi_pool, grid_sample, deform_conv, differentiation, columns, linear_algebra, orthogonal),
    eigenvalues,
)
"""Modules of ops that belong together."""

MCC = Dialect("mcc", tuple(op for family in FAMILIES for op in family.OPS))
