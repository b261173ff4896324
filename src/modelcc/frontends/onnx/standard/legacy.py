"""Forms of operators in operator sets before 7: explicit broadcasting by attributes, and more."""

from __future__ import annotations

from dataclasses import replace

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, Handler, Handlers, Results
from modelcc.ops.broadcast import reshaped

_BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "PRelu"),
)


def with_old_forms(handlers: Handlers) -> dict[str, Handler]:
    """``handlers`` that also take the forms of operator sets 1 to 6."""
    return {name: _wrapped(name, handler) for name, handler in handlers.items()}


def _wrapped(name: str, handler: Handler) -> Handler:
    if name in _BROADCASTING:
        return _aligned(handler)
    return _for_inference(handler) if name in ("BatchNormalization", "Dropout") else handler


def _aligned(handler: Handler) -> Handler:
    """Before set 7 the second operand's axes are aligned at ``axis`` of the first one's, or last.

    A slope of PRelu is per channel.
    """

    def run(call: Call) -> Results:
        if call.opset >= 7 or call.rank(1) == 0:
            return handler(call)
        rank, own = call.rank(), call.rank(1)
        axis = rank - own
        if call.op_type == "PRelu":
            axis = min(1, axis) if call.shape(1) != (1,) else axis
        elif call.attrs.has("axis"):
            axis = call.axis()
        elif not call.attrs.flag("broadcast") and call.shape() != call.shape(1):
            call.fail(f"operands {call.type()} and {call.type(1)} differ, without broadcast=1")
        if axis + own > rank:
            call.fail(f"operand {call.type(1)} does not fit into {call.type()} at axis {axis}")
        shape = (*call.shape(1), *(1,) * (rank - own - axis))
        return handler(
            replace(call, inputs=(call.inputs[0], reshaped(call, call.inputs[1], shape)))
        )

    return run


def _for_inference(handler: Handler) -> Handler:
    """Before set 7 these are in training mode unless ``is_test`` is set."""

    def run(call: Call) -> Results:
        if call.opset < 7 and not call.attrs.flag("is_test"):
            unsupported("training mode (is_test=0); export the model for inference")
        return handler(call)

    return run
