"""The operators that can be imported, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.onnx.call import Handler, Handlers
from modelcc.frontends.onnx.contrib.attention import CONTRIB_ATTENTION
from modelcc.frontends.onnx.contrib.bits import CONTRIB_BITS
from modelcc.frontends.onnx.contrib.decoder import CONTRIB_DECODER
from modelcc.frontends.onnx.contrib.dropout import CONTRIB_DROPOUT
from modelcc.frontends.onnx.contrib.experts import CONTRIB_EXPERTS
from modelcc.frontends.onnx.contrib.fused import CONTRIB
from modelcc.frontends.onnx.contrib.gates import CONTRIB_GATES
from modelcc.frontends.onnx.contrib.integer import CONTRIB_INTEGER
from modelcc.frontends.onnx.contrib.linear import CONTRIB_LINEAR
from modelcc.frontends.onnx.contrib.norm import CONTRIB_NORM
from modelcc.frontends.onnx.contrib.padding import CONTRIB_PADDING
from modelcc.frontends.onnx.contrib.quant import CONTRIB_QUANT
from modelcc.frontends.onnx.contrib.signal import CONTRIB_SIGNAL
from modelcc.frontends.onnx.contrib.tokens import CONTRIB_TOKENS
from modelcc.frontends.onnx.host.steps import IMAGES, MAPS
from modelcc.frontends.onnx.host.texts import TEXTS
from modelcc.frontends.onnx.ml.features import ML_FEATURES
from modelcc.frontends.onnx.ml.linear_models import LINEAR_MODELS
from modelcc.frontends.onnx.ml.trees import TREES
from modelcc.frontends.onnx.standard.control import CONTROL
from modelcc.frontends.onnx.standard.determinant import DETERMINANT
from modelcc.frontends.onnx.standard.elementwise import ELEMENTWISE
from modelcc.frontends.onnx.standard.gather import GATHER
from modelcc.frontends.onnx.standard.legacy import with_old_forms
from modelcc.frontends.onnx.standard.nn import NN
from modelcc.frontends.onnx.standard.quant import QUANT
from modelcc.frontends.onnx.standard.random import RANDOM
from modelcc.frontends.onnx.standard.recurrent import RECURRENT
from modelcc.frontends.onnx.standard.reduce import REDUCE
from modelcc.frontends.onnx.standard.resize import RESIZE
from modelcc.frontends.onnx.standard.sampling import SAMPLING
from modelcc.frontends.onnx.standard.selection import SELECTION
from modelcc.frontends.onnx.standard.sequence import SEQUENCE
from modelcc.frontends.onnx.standard.shape import SHAPE
from modelcc.frontends.onnx.standard.signal import SIGNAL
from modelcc.frontends.onnx.standard.tfidf import TFIDF
from modelcc.frontends.onnx.training.gradient import GRADIENT
from modelcc.frontends.onnx.training.optimizers import TRAINING
from modelcc.frontends.onnx.unofficial import UNOFFICIAL

_STANDARD = (
    *(ELEMENTWISE, SHAPE, REDUCE, GATHER, NN, QUANT, RECURRENT, RESIZE, CONTROL, SEQUENCE),
    *(SAMPLING, TEXTS, IMAGES, TFIDF, SIGNAL, RANDOM, DETERMINANT, SELECTION),
)

_MICROSOFT = (
    *(CONTRIB, CONTRIB_NORM, CONTRIB_ATTENTION, CONTRIB_QUANT, CONTRIB_EXPERTS, CONTRIB_GATES),
    *(CONTRIB_LINEAR, CONTRIB_BITS, CONTRIB_DECODER, CONTRIB_DROPOUT, CONTRIB_INTEGER),
    *(CONTRIB_PADDING, CONTRIB_SIGNAL, CONTRIB_TOKENS),
)

_TABLES: tuple[tuple[str, Handlers], ...] = (
    ("", UNOFFICIAL),  # where a name is in both, the standard's takes precedence
    *(("", with_old_forms(table)) for table in _STANDARD),
    *(("ai.onnx.ml", table) for table in (TREES, LINEAR_MODELS, ML_FEATURES, MAPS)),
    *(("ai.onnx.preview.training", table) for table in (TRAINING, GRADIENT)),
    *(("com.microsoft", table) for table in _MICROSOFT),
)

HANDLERS: Mapping[tuple[str, str], Handler] = MappingProxyType(
    {(domain, name): handler for domain, table in _TABLES for name, handler in table.items()}
)
