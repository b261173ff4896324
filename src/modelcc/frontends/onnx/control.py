"""Handlers of control flow that is decided at import."""

from __future__ import annotations

from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.shapes import is_symbolic
from modelcc.frontends.onnx.unroll import carries_groups, unrolled


def if_(call: Call) -> tuple[str, ...]:
    """The branch taken, in place, where the condition is known."""
    condition = call.known(0)
    if condition is None or is_symbolic(condition):
        unsupported(
            f"its condition ({call.labels[0]!r}) is not known before the model runs; "
            "fix the dimensions it depends on with dims"
        )
    branch = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    return call.inline(call.attrs.graph(branch))


def loop(call: Call) -> tuple[str, ...]:
    """Unrolled where it carries sequences or optional values along."""
    if carries_groups(call):
        return unrolled(call)
    unsupported("loops")


CONTROL: Handlers = MappingProxyType({"If": if_, "Loop": loop})
