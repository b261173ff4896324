"""The operators that can be imported, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.onnx.call import Handler, Handlers
from modelcc.frontends.onnx.contrib import CONTRIB
from modelcc.frontends.onnx.contrib_attention import CONTRIB_ATTENTION
from modelcc.frontends.onnx.contrib_bits import CONTRIB_BITS
from modelcc.frontends.onnx.contrib_decoder import CONTRIB_DECODER
from modelcc.frontends.onnx.contrib_dropout import CONTRIB_DROPOUT
from modelcc.frontends.onnx.contrib_experts import CONTRIB_EXPERTS
from modelcc.frontends.onnx.contrib_gates import CONTRIB_GATES
from modelcc.frontends.onnx.contrib_integer import CONTRIB_INTEGER
from modelcc.frontends.onnx.contrib_linear import CONTRIB_LINEAR
from modelcc.frontends.onnx.contrib_norm import CONTRIB_NORM
from modelcc.frontends.onnx.contrib_padding import CONTRIB_PADDING
from modelcc.frontends.onnx.contrib_quant import CONTRIB_QUANT
from modelcc.frontends.onnx.contrib_signal import CONTRIB_SIGNAL
from modelcc.frontends.onnx.contrib_tokens import CONTRIB_TOKENS
from modelcc.frontends.onnx.control import CONTROL
from modelcc.frontends.onnx.determinant import DETERMINANT
from modelcc.frontends.onnx.elementwise import ELEMENTWISE
from modelcc.frontends.onnx.gather import GATHER
from modelcc.frontends.onnx.gradient import GRADIENT
from modelcc.frontends.onnx.legacy import with_old_forms
from modelcc.frontends.onnx.linear_models import LINEAR_MODELS
from modelcc.frontends.onnx.maps import MAPS
from modelcc.frontends.onnx.ml_features import ML_FEATURES
from modelcc.frontends.onnx.nn import NN
from modelcc.frontends.onnx.quant import QUANT
from modelcc.frontends.onnx.random import RANDOM
from modelcc.frontends.onnx.recurrent import RECURRENT
from modelcc.frontends.onnx.reduce import REDUCE
from modelcc.frontends.onnx.resize import RESIZE
from modelcc.frontends.onnx.sampling import SAMPLING
from modelcc.frontends.onnx.selection import SELECTION
from modelcc.frontends.onnx.sequence import SEQUENCE
from modelcc.frontends.onnx.shape import SHAPE
from modelcc.frontends.onnx.signal import SIGNAL
from modelcc.frontends.onnx.texts import TEXTS
from modelcc.frontends.onnx.tfidf import TFIDF
from modelcc.frontends.onnx.training import TRAINING
from modelcc.frontends.onnx.trees import TREES
from modelcc.frontends.onnx.unofficial import UNOFFICIAL

_STANDARD = (
    *(ELEMENTWISE, SHAPE, REDUCE, GATHER, NN, QUANT, RECURRENT, RESIZE, CONTROL, SEQUENCE),
    *(SAMPLING, TEXTS, TFIDF, SIGNAL, RANDOM, DETERMINANT, SELECTION),
)

_MICROSOFT = (
    *(CONTRIB, CONTRIB_NORM, CONTRIB_ATTENTION, CONTRIB_QUANT, CONTRIB_EXPERTS, CONTRIB_GATES),
    *(CONTRIB_LINEAR, CONTRIB_BITS, CONTRIB_DECODER, CONTRIB_DROPOUT, CONTRIB_INTEGER),
    *(CONTRIB_PADDING, CONTRIB_SIGNAL, CONTRIB_TOKENS),
)

_TABLES: tuple[tuple[str, Handlers], ...] = (
    ("", UNOFFICIAL),  # where a name is in both, the standard's counts
    *(("", with_old_forms(table)) for table in _STANDARD),
    *(("ai.onnx.ml", table) for table in (TREES, LINEAR_MODELS, ML_FEATURES, MAPS)),
    *(("ai.onnx.preview.training", table) for table in (TRAINING, GRADIENT)),
    *(("com.microsoft", table) for table in _MICROSOFT),
)

HANDLERS: Mapping[tuple[str, str], Handler] = MappingProxyType(
    {(domain, name): handler for domain, table in _TABLES for name, handler in table.items()}
)
