"""ONNX operators by op.  Ops that are not listed are exported by their decomposition."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from modelcc.exporters.onnx import (
    control,
    elementwise,
    movement,
    norms,
    places,
    quantised,
    recurrent,
    sampling,
    selection,
    totals,
    windows,
)
from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import Entry, OnnxWriting, settings_of
from modelcc.ir.op import Op
from modelcc.ops import activation, arithmetic, comparison, logic, reduce, transcendental
from modelcc.ops.attention import Attention, LogSoftmax, Softmax
from modelcc.ops.boxes import ImageNumbers
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm
from modelcc.ops.columns import Col2Im
from modelcc.ops.control import If, Loop
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from modelcc.ops.deform_conv import DeformConv
from modelcc.ops.differentiation import After, StopGradient
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.gather import Gather, GatherSum, OneHot
from modelcc.ops.gather_elements import GatherElements, ScatterElements
from modelcc.ops.gather_nd import GatherND, ScatterND
from modelcc.ops.generate import EyeLike, Full, Indices, Iota
from modelcc.ops.grid_sample import GridSample
from modelcc.ops.hardmax import Hardmax, RowHardmax
from modelcc.ops.late_tile import LateTile
from modelcc.ops.layer_norm import LayerNorm, RMSNorm
from modelcc.ops.lp_pool import LpPool
from modelcc.ops.matmul import Einsum, Gemm, MatMul
from modelcc.ops.moments import Moments
from modelcc.ops.nonzero import NonZero
from modelcc.ops.norm import LRN, LpNormalization
from modelcc.ops.packed_matmul import PackedMatMul
from modelcc.ops.padding import Pad
from modelcc.ops.pool import AveragePool, MaxPool, MaxPoolGrad, MaxPoolIndices
from modelcc.ops.quant import (
    DequantizeLinear,
    DynamicQuantizeLinear,
    QuantizeLinear,
    Recentre,
    Saturate,
)
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from modelcc.ops.recurrent import GRU, LSTM, RNN
from modelcc.ops.resize import Resize
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.roi_pool import MaxRoiPool
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Concat, Tile, Transpose, Trilu
from modelcc.ops.slicing import At, ReplaceSlice, Slice, Unslice
from modelcc.ops.suppression import NonMaxSuppression
from modelcc.ops.time_axis import CacheUpdate, ReverseSequence
from modelcc.ops.top_k import TopK
from modelcc.ops.unique import Unique


def same(at: OnnxWriting, op: Op) -> tuple[OnnxValue, ...]:
    """An operator of the same name, operands and attributes."""
    return at.direct(type(op).__name__, **settings_of(op))


def called(operator: str) -> Entry:
    """An operator of another name, and the same operands and attributes."""

    def entry(at: OnnxWriting, op: Any) -> tuple[OnnxValue, ...]:
        return at.direct(operator, **settings_of(op))

    return entry


_ELEMENTWISE: tuple[type[Op], ...] = (
    *arithmetic.OPS, *comparison.OPS, *logic.OPS, *transcendental.OPS,
    *(activation.Relu, activation.Softplus, activation.Softsign, activation.Mish),
)  # fmt: skip

ENTRIES: Mapping[type[Op], Entry] = MappingProxyType(
    {
        **dict.fromkeys(_ELEMENTWISE, same),
        arithmetic.Cast: elementwise.cast,
        arithmetic.BitCast: elementwise.bits,
        arithmetic.Mod: elementwise.modulus,
        comparison.NotEqual: elementwise.unequal,
        comparison.ClipTensor: called("Clip"),
        logic.BitShift: elementwise.shift,
        activation.LeakyRelu: elementwise.exact(elementwise.leaky),
        activation.ThresholdedRelu: elementwise.exact(elementwise.thresholded),
        activation.Elu: elementwise.exact(elementwise.exponential),
        activation.Celu: elementwise.exact(elementwise.stretched),
        activation.Selu: elementwise.exact(elementwise.self_normalising),
        activation.HardSigmoid: elementwise.exact(elementwise.line_in_bounds),
        activation.HardSwish: elementwise.exact(elementwise.decomposed),
        activation.Gelu: elementwise.exact(elementwise.decomposed),
        activation.PRelu: elementwise.parametric,
        transcendental.Exp2: elementwise.power_of_two,
        transcendental.Expm1: elementwise.power_less_one,
        transcendental.Log1p: elementwise.log_of_one_more,
        transcendental.Rsqrt: elementwise.inverse_root,
        activation.Affine: elementwise.affine,
        activation.ScaledTanh: elementwise.scaled_tanh,
        activation.Clip: elementwise.clip,
        **dict.fromkeys((StopGradient, After), elementwise.unchanged),
        Saturate: elementwise.saturated,
        Recentre: elementwise.recentred,
        **dict.fromkeys(reduce.OPS, norms.reduction),
        reduce.ArgMax: norms.extreme_place,
        reduce.ArgMin: norms.extreme_place,
        Moments: norms.moments,
        CumSum: totals.running_sum,
        CumProd: totals.running("Mul"),
        CumMax: totals.running("Max"),
        CumMin: totals.running("Min"),
        CumLogSumExp: totals.scanned(totals.log_sum),
        Reshape: movement.reshape,
        Expand: movement.expand,
        Full: movement.full,
        Indices: movement.indices,
        Iota: movement.iota,
        EyeLike: movement.eye_like,
        Slice: movement.part,
        Unslice: movement.spread,
        ReplaceSlice: movement.replaced,
        At: movement.element,
        Transpose: movement.transpose,
        Concat: same,
        Tile: movement.tile,
        LateTile: movement.tile,
        Trilu: movement.triangle,
        Pad: movement.pad,
        Gather: places.gather,
        GatherSum: places.gather_sum,
        OneHot: places.one_hot,
        GatherElements: places.gather_elements,
        ScatterElements: places.scatter_elements,
        GatherND: places.gather_nd,
        ScatterND: places.scatter_nd,
        ReverseSequence: places.reverse_sequence,
        CacheUpdate: places.cache_update,
        MatMul: same,
        Gemm: norms.gemm,
        Einsum: norms.einsum,
        Conv: windows.convolution,
        ConvTranspose: windows.transposed,
        MaxPool: windows.greatest,
        MaxPoolIndices: windows.greatest_places,
        MaxPoolGrad: windows.greatest_gradient,
        AveragePool: windows.average,
        LpPool: windows.norm,
        DeformConv: windows.deformed,
        Col2Im: windows.columns,
        BatchNorm: norms.batch_norm,
        GroupNorm: norms.group_norm,
        InstanceNorm: norms.instance_norm,
        LayerNorm: norms.trailing_norm("LayerNormalization"),
        RMSNorm: norms.trailing_norm("RMSNormalization"),
        LpNormalization: same,
        LRN: same,
        Softmax: same,
        LogSoftmax: same,
        Hardmax: same,
        RowHardmax: called("Hardmax"),
        Attention: norms.attention,
        Resize: sampling.resized,
        GridSample: sampling.sampled,
        RoiAlign: sampling.box_align,
        MaxRoiPool: sampling.box_pool,
        ImageNumbers: lambda at, op: at.indices(0),
        ReadSize: selection.read_size,
        NonZero: selection.non_zero,
        Unique: selection.unique,
        NonMaxSuppression: selection.kept_boxes,
        TopK: selection.top,
        FourierTransform: selection.fourier,
        QuantizeLinear: quantised.quantised,
        DequantizeLinear: quantised.dequantised,
        DynamicQuantizeLinear: same,
        PackedMatMul: quantised.packed_product,
        MatMulInteger: quantised.integer_product,
        ConvInteger: windows.integer_convolution,
        QLinearMatMul: quantised.quantised_product,
        QLinearConv: windows.quantised_convolution,
        **dict.fromkeys((RNN, GRU, LSTM), recurrent.layer),
        If: control.branch,
        Loop: control.loop,
    }
)
