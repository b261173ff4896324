"""Resolution of a node's operator, and of its handler."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from modelcc.frontends.onnx.call import Handler
from modelcc.frontends.onnx.extensions import extensions
from modelcc.frontends.onnx.handlers import HANDLERS
from modelcc.frontends.onnx.schema import Schema, Schemas, newest
from modelcc.frontends.onnx.unofficial import UNOFFICIAL

_log = logging.getLogger(__name__)


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


class Operators:
    """The standard's operators, onnxruntime's and those of installed packages."""

    def __init__(self) -> None:
        self._schemas = Schemas()
        self._assumed: set[str] = set()

    def version(self, domain: str, opsets: Mapping[str, int]) -> int:
        """The version of operator set ``domain``; as in onnxruntime the newest if the model imports
        none."""
        version = opsets.get(domain)
        if version is not None:
            return version
        if domain not in self._assumed:
            self._assumed.add(domain)
            name, version = domain or "ai.onnx", newest(domain)
            _log.info("the model does not import %s; taken to be of version %d", name, version)
        return newest(domain)

    def schema(self, domain: str, op_type: str, version: int) -> Schema | None:
        """The standard's schema of an operator, if it exists in this version."""
        return self._schemas.find(domain, op_type, version)

    def handler(self, domain: str, op_type: str, version: int) -> Handler | None:
        """The handler of an operator; None if it is unknown or has a definition only."""
        if domain == "" and self.schema(domain, op_type, version) is None:
            return UNOFFICIAL.get(op_type)
        found = HANDLERS.get((domain, op_type))
        return found or (self._extensions.get((domain, op_type)) if domain else None)

    @cached_property
    def _extensions(self) -> Mapping[tuple[str, str], Handler]:
        return extensions()

    def unknown(self, domain: str, op_type: str, version: int) -> str | None:
        """Why an operator is not available; None if it is."""
        if self.handler(domain, op_type, version) is not None:
            return None
        schema = self.schema(domain, op_type, version)
        if schema is not None:
            return None if schema.has_definition else "modelcc does not have this operator"
        custom = "" if domain in ("", "ai.onnx.ml") else " (a custom operator)"
        reason = refusal(domain, op_type)
        return reason or f"there is no such operator in this operator set{custom}"


def refusal(domain: str, op_type: str) -> str | None:
    """Why an operator is rejected, None if there is no specific reason."""
    return _REASONS.get(op_type) if domain == "com.microsoft" else None
