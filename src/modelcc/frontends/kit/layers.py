"""The standard layers as each source of models calls them.

StableHLO has no layers above arithmetic: where it has no name, JAX writes a layer as arithmetic,
and the passes of the graph level recognise what it is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StandardLayer:
    """A layer, and its operators in ONNX, ATen and StableHLO; none where it is composed there."""

    name: str
    onnx: tuple[str, ...] = ()
    aten: tuple[str, ...] = ()
    stablehlo: tuple[str, ...] = ()


def _layer(name: str, onnx: str = "", aten: str = "", stablehlo: str = "") -> StandardLayer:
    return StandardLayer(name, tuple(onnx.split()), tuple(aten.split()), tuple(stablehlo.split()))


LAYERS = (
    _layer("Linear", "Gemm MatMul", "linear addmm mm", "dot_general"),
    _layer("Batched product", "MatMul Einsum", "bmm baddbmm matmul", "dot_general"),
    _layer("Convolution", "Conv", "convolution conv1d conv2d conv3d", "convolution"),
    _layer("Transposed convolution", "ConvTranspose", "convolution", "convolution"),
    _layer("Max pooling", "MaxPool", "max_pool2d max_pool2d_with_indices", "reduce_window"),
    _layer("Average pooling", "AveragePool", "avg_pool2d", "reduce_window"),
    _layer("Global and adaptive pooling", "GlobalAveragePool", "adaptive_avg_pool2d", "reduce"),
    _layer("Batch normalisation", "BatchNormalization",
           "_native_batch_norm_legit_no_training", ""),
    _layer("StandardLayer normalisation", "LayerNormalization", "layer_norm native_layer_norm", ""),
    _layer("RMS normalisation", "RMSNormalization", "rms_norm", ""),
    _layer("Group normalisation", "GroupNormalization", "group_norm native_group_norm", ""),
    _layer("Softmax", "Softmax", "softmax _softmax", ""),
    _layer("Log softmax", "LogSoftmax", "log_softmax _log_softmax", ""),
    _layer("ReLU", "Relu", "relu", "maximum"),
    _layer("GELU", "Gelu", "gelu", ""),
    _layer("SiLU", "Swish", "silu", ""),
    _layer("Sigmoid", "Sigmoid", "sigmoid", "logistic"),
    _layer("Tanh", "Tanh", "tanh", "tanh"),
    _layer("Leaky ReLU", "LeakyRelu", "leaky_relu", ""),
    _layer("ELU", "Elu", "elu", ""),
    _layer("Hard swish", "HardSwish", "hardswish", ""),
    _layer("Softplus", "Softplus", "softplus", ""),
    _layer("Attention", "Attention", "scaled_dot_product_attention", ""),
    _layer("LSTM", "LSTM", "lstm", "while"),
    _layer("GRU", "GRU", "gru", "while"),
    _layer("Embedding", "Gather", "embedding", "gather"),
    _layer("Dropout", "Dropout", "native_dropout", ""),
    _layer("Upsampling", "Resize", "upsample_nearest2d upsample_bilinear2d", ""),
    _layer("Sum", "ReduceSum", "sum", "reduce"),
    _layer("Mean", "ReduceMean", "mean", ""),
    _layer("Maximum of elements", "ReduceMax", "amax", "reduce"),
    _layer("Index of the maximum", "ArgMax", "argmax", "reduce"),
    _layer("Running sum", "CumSum", "cumsum", "reduce_window"),
    _layer("Best k", "TopK", "topk", "sort"),
    _layer("Order", "TopK", "sort", "sort"),
    _layer("Gather", "GatherElements GatherND", "gather index", "gather"),
    _layer("Scatter", "ScatterElements ScatterND", "scatter scatter_add index_put", "scatter"),
    _layer("Places that are not zero", "NonZero", "nonzero", ""),
    _layer("Choice", "Where", "where", "select"),
    _layer("Clamp", "Clip", "clamp", "clamp"),
    _layer("Conversion", "Cast", "_to_copy", "convert"),
    _layer("Reshape", "Reshape Flatten", "view reshape", "reshape"),
    _layer("Transpose", "Transpose", "permute transpose", "transpose"),
    _layer("Concatenation", "Concat", "cat", "concatenate"),
    _layer("Split", "Split", "split_with_sizes", "slice"),
    _layer("Slice", "Slice", "slice select", "slice dynamic_slice"),
    _layer("Broadcast", "Expand", "expand", "broadcast_in_dim"),
    _layer("Padding", "Pad", "constant_pad_nd", "pad"),
    _layer("Branch", "If", "cond", "if case"),
    _layer("Loop", "Loop Scan", "while_loop", "while"),
)  # fmt: skip
