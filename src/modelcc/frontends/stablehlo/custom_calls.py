"""Supported custom calls, and operations that are rejected with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.stablehlo.call import Handler, HloCall, Results, table
from modelcc.frontends.stablehlo.complex_matrices import COMPLEX_LAPACK
from modelcc.frontends.stablehlo.linear_algebra import FACTORS, LAPACK
from modelcc.frontends.stablehlo.quantization import CALLS
from modelcc.frontends.stablehlo.random_bits import random_bits
from modelcc.frontends.stablehlo.sorting import approximate_top_k
from modelcc.frontends.stablehlo.windows import dynamic_reduce_window
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Comparison, Expr


def custom_call(call: HloCall) -> Results:
    target = str(call.attribute("call_target_name"))
    handler = _TARGETS.get(target) or LAPACK.get(target) or COMPLEX_LAPACK.get(target)
    if handler is None:
        unsupported(_reason(target))
    return handler(call)


def _reason(target: str) -> str:
    """Why a custom call is not supported, by the jax function that emits it."""
    if "python" in target and "callback" in target:
        return "it calls Python, which compiled code cannot: take callbacks and debug.print out"
    name = target.removeprefix("lapack_").removesuffix("_ffi")
    if not target.startswith("lapack_"):
        return f"modelcc knows no custom call {target!r}"
    own = FACTORS.get(name[1:], "")
    return own or f"factors of {'complex ' if name[0] in 'cz' else ''}matrices ({name})"


def shape_assertion(call: HloCall) -> Sequence[str]:
    """Constraints on named dimensions; a run fails if they do not hold."""
    known = call.known(0)
    if known is not None and not is_symbolic(known):
        if not bool(np.all(known)):
            call.fail(str(call.attribute("error_message")))
        return ()
    constraint = _asserted(call, call.op.operands[0])
    if constraint is None:
        unsupported("it asserts what is no comparison of sizes")
    call.emitter.require([constraint], call.source, always=True)
    return ()


def _asserted(call: HloCall, number: int) -> Constraint | None:
    """The comparison of sizes that defines a value."""
    op = call.defining(number)
    if op is None or op.name != "stablehlo.compare":
        return None
    sides = [_size(call, operand) for operand in op.operands]
    comparison = _COMPARISONS.get(str(op.attributes["comparison_direction"]))
    if comparison is None or sides[0] is None or sides[1] is None:
        return None
    return sides[0], comparison, sides[1]


_COMPARISONS: Mapping[str, Comparison] = MappingProxyType(
    {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
)


def _size(call: HloCall, number: int) -> Expr | int | None:
    value = call.find(number)
    contents = None if value is None else call.emitter.contents(value)
    if contents is None or contents.size != 1:
        return None
    found = contents.reshape(-1).tolist()[0]
    return found if isinstance(found, int | Expr) else None


def same(call: HloCall) -> Results:
    """The operands unchanged: device annotations have no effect on a single device."""
    return call.inputs


_TARGETS: Mapping[str, Handler] = MappingProxyType(
    {
        "shape_assertion": shape_assertion,
        "Sharding": same,
        "SPMDFullToShardShape": same,
        "SPMDShardToFullShape": same,
        "annotate_device_placement": same,
        "LayoutConstraint": same,
        "ApproxTopK": approximate_top_k,
        "stablehlo.dynamic_reduce_window": dynamic_reduce_window,
        **CALLS,
    }
)


def refused(reason: str) -> Handler:
    """A handler that rejects with ``reason``."""
    return lambda call: unsupported(reason)


_DEVICES = "it is of several devices"
_RANDOM = "random numbers of the machine: use a generator of jax, whose numbers are computed"

SPECIAL = table(custom_call=custom_call, rng_bit_generator=random_bits)

REFUSED: Mapping[str, Handler] = MappingProxyType(
    {
        **{
            f"stablehlo.{name}": refused(_DEVICES)
            for name in (
                *("all_gather", "all_reduce", "all_to_all", "collective_broadcast"),
                *("collective_permute", "cross-replica-sum", "partition_id", "recv", "send"),
                *("reduce_scatter", "replica_id", "infeed", "outfeed"),
            )
        },
        "stablehlo.rng": refused(_RANDOM),
    }
)
