"""Why operators of onnxruntime (com.microsoft) are refused, where more can be said than that."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_FOREIGN = "it holds code that another compiler made for its device; export the model without that"
_SEARCH = "it searches with a whole model; compile the decoder, and search around it"
_LAYOUT = "its operands have layouts of a library for one vendor's devices"
_PAGES = "its cache is in pages that a server hands out"
_FORMAT = "its blocks have a format of one vendor's devices"
_TEXTS = "it works on texts that the model makes or reads; tokenise before the model"
_SELECTION = "which keys it sees is chosen by state that a server keeps"

_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "EPContext": _FOREIGN,
        "Snpe": _FOREIGN,
        "BeamSearch": _SEARCH,
        "GreedySearch": _SEARCH,
        "Sampling": _SEARCH,
        "WhisperBeamSearch": _SEARCH,
        "BifurcationDetector": _SEARCH,
        "QuantizeWithOrder": _LAYOUT,
        "DequantizeWithOrder": _LAYOUT,
        "QOrderedAttention": _LAYOUT,
        "QOrderedGelu": _LAYOUT,
        "QOrderedLayerNormalization": _LAYOUT,
        "QOrderedLongformerAttention": _LAYOUT,
        "QOrderedMatMul": _LAYOUT,
        "PagedAttention": _PAGES,
        "SparsePagedAttention": _PAGES,
        "DynamicSparseAttention": _SELECTION,
        "SparseAttentionIndexer": _SELECTION,
        "PackedSparseAttentionIndexer": _SELECTION,
        "QuantizeBFP": _FORMAT,
        "DequantizeBFP": _FORMAT,
        "Tokenizer": _TEXTS,
        "MaxpoolWithMask": "it is for onnxruntime's own use, and nothing says what it means",
    }
)


def refusal(domain: str, op_type: str) -> str | None:
    """Why an operator is refused, None if there is no more to say."""
    return _REASONS.get(op_type) if domain == "com.microsoft" else None
