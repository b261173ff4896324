"""User settings of quantisation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from modelcc import checks
from modelcc.ir.errors import ModelError
from modelcc.ir.types import I4, I8, I16, U8, DType

NONE, FLOAT = "none", "float"
ACTIVATIONS: Mapping[str, DType | None] = MappingProxyType(
    {"int8": I8, "uint8": U8, "int16": I16, NONE: None}
)
"""Dtypes of activations; none: weights only."""

WEIGHTS: Mapping[str, DType] = MappingProxyType({"int8": I8, "int4": I4})
METHODS = ("minmax", "percentile", "entropy", "mse")
FALLBACKS = (FLOAT, "int16")


@dataclass(frozen=True)
class QuantizationSettings:
    """How a model is quantised; :class:`ModelError` says which settings are wrong.

    ``activations`` are int8, uint8, int16 or none, ``weights`` int8, or int4 with activations none.
    ``method`` finds ranges: minmax, ``percentile``, entropy or mse.  ``symmetric`` activations have
    zero point 0; ``per_channel`` weights a scale for each output, those without activations for
    each ``block`` of the reduction (0: for each output).
    ``ops`` names the classes of ops that are quantised (none: all that can be), ``skip`` names
    nodes of the model, or values, whose ops are not.
    ``max_error`` (of the outputs, root mean square, relative) and ``max_bytes`` (of constants)
    are budgets that decide which layers stay in ``fallback``: float, or int16 activations.
    """

    activations: str = "int8"
    weights: str = "int8"
    method: str = "minmax"
    percentile: float = 99.99
    symmetric: bool = False
    per_channel: bool = True
    block: int = 32
    equalize: bool = False
    correct_bias: bool = False
    ops: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    sensitivity: bool = False
    max_error: float | None = None
    max_bytes: int | None = None
    fallback: str = FLOAT

    def __post_init__(self) -> None:
        _choice("activations", self.activations, ACTIVATIONS)
        _choice("weights", self.weights, WEIGHTS)
        _choice("method", self.method, METHODS)
        _choice("fallback", self.fallback, FALLBACKS)
        for name in ("symmetric", "per_channel", "equalize", "correct_bias", "sensitivity"):
            checks.flag(name, getattr(self, name))
        for name in ("ops", "skip"):
            object.__setattr__(self, name, checks.names(name, getattr(self, name)))
        checks.whole_number("block", self.block)
        share = checks.number("percentile", self.percentile)
        if not 50 < share <= 100:
            raise ModelError(f"percentile must be above 50 and at most 100, not {share}")
        if self.max_error is not None:
            checks.number("max_error", self.max_error)
        if self.max_bytes is not None:
            checks.whole_number("max_bytes", self.max_bytes)
        self._check_together()

    def _check_together(self) -> None:
        if self.weights == "int4" and self.activation is not None:
            hint = f"give activations={NONE!r}, or weights='int8'"
            raise ModelError("weights of 4 bits are for products with floats", (), hint)
        if self.activation is None and self.fallback != FLOAT:
            raise ModelError("without activations, layers have nothing but float to stay in")

    @property
    def activation(self) -> DType | None:
        """The element type of activations."""
        return ACTIVATIONS[self.activations]

    @property
    def has_budget(self) -> bool:
        """Whether some layers may have to stay unquantised."""
        return self.max_error is not None or self.max_bytes is not None


def _choice(what: str, value: object, known: Iterable[str]) -> None:
    names = list(known)
    if value not in names:
        listed = ", ".join(names)
        raise ModelError(f"{what} must be one of {listed}, not {checks.shown(value)}")
