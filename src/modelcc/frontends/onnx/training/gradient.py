"""Gradient of ai.onnx.preview.training: reverse-mode differentiation at import."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.graph import Node
from modelcc.ops.elementwise import Add
from modelcc.ops.shape import Full


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
    adjoint = {emitter.stored(y): _filled(call, emitter.stored(y), 1.0)}
    for node in reversed(list(emitter.builder.nodes())):
        if not adjoint.keys().isdisjoint(node.outputs) and not set(node.outputs) <= set(xs):
            _propagate(call, node, adjoint)
    return tuple(adjoint.get(x) or _filled(call, x, 0.0) for x in xs)


def _filled(call: Call, like: str, value: float) -> str:
    type = call.type_of(like)
    return call.emit(Full(type.shape, value, type.dtype))


def _propagate(call: Call, node: Node, adjoint: dict[str, str]) -> None:
    """Add what the results' gradients say of the operands of ``node`` to ``adjoint``."""
    if not node.op.has("grad"):
        unsupported(f"the gradient of {node.op.mnemonic()}")
    dys = [adjoint.get(o) or _filled(call, o, 0.0) for o in node.outputs]
    for name, found in zip(node.inputs, node.op.grad(call.emitter, dys, *node.inputs), strict=True):
        if name and found is not None:
            known = adjoint.get(name)
            adjoint[name] = found if known is None else call.emit(Add(), known, found)


GRADIENT = table(Gradient=gradient)
