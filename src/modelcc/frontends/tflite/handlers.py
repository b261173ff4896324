"""Handlers of all operators: the tables of the families merged."""

from __future__ import annotations

from types import MappingProxyType

from modelcc.frontends.tflite.activations import ACTIVATIONS
from modelcc.frontends.tflite.arrays import ARRAYS
from modelcc.frontends.tflite.call import Handlers
from modelcc.frontends.tflite.complex_numbers import COMPLEX_NUMBERS
from modelcc.frontends.tflite.control import CONTROL
from modelcc.frontends.tflite.convolution import CONVOLUTION
from modelcc.frontends.tflite.detection import DETECTION
from modelcc.frontends.tflite.elementwise import ELEMENTWISE
from modelcc.frontends.tflite.fully_connected import PRODUCTS
from modelcc.frontends.tflite.gathering import GATHERING
from modelcc.frontends.tflite.lstm import LSTM
from modelcc.frontends.tflite.movement import MOVEMENT
from modelcc.frontends.tflite.normalization import NORMALIZATION
from modelcc.frontends.tflite.pooling import POOLING
from modelcc.frontends.tflite.quantization import QUANTIZATION
from modelcc.frontends.tflite.reduction import REDUCTION
from modelcc.frontends.tflite.resizing import RESIZING
from modelcc.frontends.tflite.rnn import RNN
from modelcc.frontends.tflite.slicing import SLICING
from modelcc.frontends.tflite.svdf import SVDF
from modelcc.frontends.tflite.transposed_convolution import TRANSPOSED_CONVOLUTION

HANDLERS: Handlers = MappingProxyType(
    {
        **CONVOLUTION, **PRODUCTS, **POOLING, **ELEMENTWISE, **ACTIVATIONS,
        **QUANTIZATION, **MOVEMENT, **SLICING, **REDUCTION, **RESIZING,
        **TRANSPOSED_CONVOLUTION, **SVDF, **LSTM, **CONTROL, **GATHERING,
        **ARRAYS, **COMPLEX_NUMBERS, **DETECTION,
        **NORMALIZATION, **RNN,
    }
)  # fmt: skip
"""Handlers by the schema's names of operators, and of custom ones by their own."""
