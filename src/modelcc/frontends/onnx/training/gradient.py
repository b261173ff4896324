"""Gradient of ai.onnx.preview.training: reverse-mode differentiation at import."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.ops.generate import filled
from modelcc.ops.reverse import GradientError, adjoints


def gradient(call: Call) -> tuple[str, ...]:
    """Gradients of ``y`` with respect to ``xs``, each in the shape of its x."""
    emitter = call.emitter
    y = call.find(call.attrs.text("y"))
    if y is None:
        unsupported("the value to differentiate could not be imported")
    names = call.attrs.texts("xs")
    if list(names) != list(call.labels[: len(names)]):
        call.fail(f"xs {list(names)} are not its first operands, {list(call.labels)}")
    xs = [emitter.stored(x) for x in call.inputs[: len(names)]]
    result = emitter.stored(y)
    # The xs are independent of each other, even if one is computed from another.
    nodes = [node for node in emitter.builder.nodes() if not set(node.outputs) <= set(xs)]
    try:
        found = adjoints(call, nodes, {result: filled(call, result, 1.0)}, xs)
    except GradientError as error:
        unsupported(error.message)
    return tuple(found.get(x) or filled(call, x) for x in xs)


GRADIENT = table(Gradient=gradient)
