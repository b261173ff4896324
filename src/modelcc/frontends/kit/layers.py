"""The standard layers as named by each frontend.

StableHLO has few layers above arithmetic: JAX lowers others to arithmetic, from which graph-level
passes recognise them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StandardLayer:
    """A layer, and its operators in ONNX, ATen, StableHLO and TFLite; none where it is
    decomposed."""

    name: str
    onnx: tuple[str, ...] = ()
    aten: tuple[str, ...] = ()
    stablehlo: tuple[str, ...] = ()
    tflite: tuple[str, ...] = ()


def _layer(name: str, *operators: str) -> StandardLayer:
    return StandardLayer(name, *(tuple(names.split()) for names in operators))


LAYERS = (
    _layer("Linear", "Gemm MatMul", "linear addmm mm", "dot_general", "FULLY_CONNECTED"),
    _layer("Batched product", "MatMul Einsum", "bmm baddbmm matmul", "dot_general", "BATCH_MATMUL"),
    _layer("Convolution", "Conv", "convolution conv1d conv2d conv3d", "convolution",
           "CONV_2D DEPTHWISE_CONV_2D"),
    _layer("Transposed convolution", "ConvTranspose", "convolution", "convolution",
           "TRANSPOSE_CONV"),
    _layer("Max pooling", "MaxPool", "max_pool2d max_pool2d_with_indices", "reduce_window",
           "MAX_POOL_2D"),
    _layer("Average pooling", "AveragePool", "avg_pool2d", "reduce_window", "AVERAGE_POOL_2D"),
    _layer("Global and adaptive pooling", "GlobalAveragePool", "adaptive_avg_pool2d", "reduce",
           "MEAN"),
    _layer("Batch normalisation", "BatchNormalization",
           "_native_batch_norm_legit_no_training", ""),
    _layer("Layer normalisation", "LayerNormalization", "layer_norm native_layer_norm", ""),
    _layer("RMS normalisation", "RMSNormalization", "rms_norm", ""),
    _layer("Group normalisation", "GroupNormalization", "group_norm native_group_norm", ""),
    _layer("Softmax", "Softmax", "softmax _softmax", "", "SOFTMAX"),
    _layer("Log softmax", "LogSoftmax", "log_softmax _log_softmax", "", "LOG_SOFTMAX"),
    _layer("ReLU", "Relu", "relu", "maximum", "RELU"),
    _layer("GELU", "Gelu", "gelu", "", "GELU"),
    _layer("SiLU", "Swish", "silu", ""),
    _layer("Sigmoid", "Sigmoid", "sigmoid", "logistic", "LOGISTIC"),
    _layer("Tanh", "Tanh", "tanh", "tanh", "TANH"),
    _layer("Leaky ReLU", "LeakyRelu", "leaky_relu", "", "LEAKY_RELU"),
    _layer("ELU", "Elu", "elu", "", "ELU"),
    _layer("Hard swish", "HardSwish", "hardswish", "", "HARD_SWISH"),
    _layer("Softplus", "Softplus", "softplus", ""),
    _layer("Attention", "Attention", "scaled_dot_product_attention", ""),
    _layer("LSTM", "LSTM", "lstm", "while", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    _layer("GRU", "GRU", "gru", "while"),
    _layer("Embedding", "Gather", "embedding", "gather", "EMBEDDING_LOOKUP"),
    _layer("Dropout", "Dropout", "native_dropout", ""),
    _layer("Upsampling", "Resize", "upsample_nearest2d upsample_bilinear2d", "",
           "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR"),
    _layer("Sum", "ReduceSum", "sum", "reduce", "SUM"),
    _layer("Mean", "ReduceMean", "mean", "", "MEAN"),
    _layer("Maximum of elements", "ReduceMax", "amax", "reduce", "REDUCE_MAX"),
    _layer("Index of the maximum", "ArgMax", "argmax", "reduce", "ARG_MAX"),
    _layer("Running sum", "CumSum", "cumsum", "reduce_window", "CUMSUM"),
    _layer("Best k", "TopK", "topk", "sort", "TOPK_V2"),
    _layer("Order", "TopK", "sort", "sort", "TOPK_V2"),
    _layer("Gather", "GatherElements GatherND", "gather index", "gather", "GATHER GATHER_ND"),
    _layer("Scatter", "ScatterElements ScatterND", "scatter scatter_add index_put", "scatter",
           "SCATTER_ND"),
    _layer("Places that are not zero", "NonZero", "nonzero", "", "WHERE"),
    _layer("Choice", "Where", "where", "select", "SELECT_V2"),
    _layer("Clamp", "Clip", "clamp", "clamp"),
    _layer("Conversion", "Cast", "_to_copy", "convert", "CAST"),
    _layer("Reshape", "Reshape Flatten", "view reshape", "reshape", "RESHAPE"),
    _layer("Transpose", "Transpose", "permute transpose", "transpose", "TRANSPOSE"),
    _layer("Concatenation", "Concat", "cat", "concatenate", "CONCATENATION"),
    _layer("Split", "Split", "split_with_sizes", "slice", "SPLIT SPLIT_V"),
    _layer("Slice", "Slice", "slice select", "slice dynamic_slice", "SLICE STRIDED_SLICE"),
    _layer("Broadcast", "Expand", "expand", "broadcast_in_dim", "BROADCAST_TO"),
    _layer("Padding", "Pad", "constant_pad_nd", "pad", "PAD PADV2"),
    _layer("Branch", "If", "cond", "if case", "IF"),
    _layer("Loop", "Loop Scan", "while_loop", "while", "WHILE"),
)  # fmt: skip
