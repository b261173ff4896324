"""All handlers, by the names of their operations."""

from __future__ import annotations

from types import MappingProxyType

from modelcc.frontends.stablehlo.call import Handlers
from modelcc.frontends.stablehlo.chlo import ABOVE
from modelcc.frontends.stablehlo.contraction import CONTRACTION
from modelcc.frontends.stablehlo.control import CALLS, CONTROL, INLINE, SHARDING
from modelcc.frontends.stablehlo.custom_calls import REFUSED, SPECIAL
from modelcc.frontends.stablehlo.elementwise import ELEMENTWISE
from modelcc.frontends.stablehlo.gathering import GATHERING
from modelcc.frontends.stablehlo.linear_algebra import LINEAR_ALGEBRA
from modelcc.frontends.stablehlo.precision import PRECISION
from modelcc.frontends.stablehlo.reduction import REDUCTION
from modelcc.frontends.stablehlo.scattering import SCATTERING
from modelcc.frontends.stablehlo.sorting import SORTING, TOP
from modelcc.frontends.stablehlo.structure import SIZES, STRUCTURE
from modelcc.frontends.stablehlo.windows import WINDOWS

HANDLERS: Handlers = MappingProxyType(
    {
        **ELEMENTWISE, **ABOVE, **STRUCTURE, **SIZES, **CONTRACTION, **REDUCTION, **WINDOWS,
        **GATHERING, **SCATTERING, **SORTING, **TOP, **CONTROL, **CALLS, **INLINE, **SHARDING,
        **LINEAR_ALGEBRA, **PRECISION, **SPECIAL, **REFUSED,
    }
)  # fmt: skip
