"""Handlers of layers of ``torch.compile``'s recurrent networks, and of their gradients.

Forward returns the values that gradients need: the history that loops over time record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from modelcc.frontends.torch.aten import Aten, Handlers, overloads
from modelcc.frontends.torch.recurrent import layer
from modelcc.ir.graph import Node
from modelcc.ir.op import Builder, Gradients, Op, Values
from modelcc.ops.arithmetic import Value
from modelcc.ops.control import Loop
from modelcc.ops.generate import filled
from modelcc.ops.reverse import Recorder, adjoints


class _Keeping(Recorder):
    """Saves the values that gradients of loops need, in the order of nodes."""

    def __init__(self, build: Builder) -> None:
        super().__init__(build)
        self.kept: list[str] = []

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        if not isinstance(op, Loop):
            return super().add(op, *inputs)
        outputs = super().add(op.recorded(slices=True), *inputs)
        own = op.states + len(op.axes)
        self.kept += outputs[own:]
        return outputs[:own]


class _Recalling(Recorder):
    """Returns the values saved by :class:`_Keeping` instead of recomputing them."""

    def __init__(self, build: Builder, kept: Iterator[str]) -> None:
        super().__init__(build)
        self._kept = kept

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        if not isinstance(op, Loop):
            return super().add(op, *inputs)
        outputs = self.build.add(op, *inputs)  # for their types; never read
        history = len(op.recorded(slices=False).axes)
        self.nodes.append(Node(_Ran(op, tuple(islice(self._kept, history))), inputs, outputs))
        return outputs


@dataclass(frozen=True)
class _Ran(Op):
    """An executed loop, with the values of its ``history``."""

    loop: Loop
    history: tuple[str, ...]

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        return self.loop.backward(build, dys, inputs, self.history)


def recurrent(
    call: Aten, kind: str, x: Value, states: Sequence[Value], params: Sequence[Value], record: bool
) -> Sequence[Value]:
    """The results of a layer, then, if ``record``, the values that its gradients need."""
    if not record:
        return layer(call, kind, x, states, params)
    run = _Keeping(call)
    results = layer(run, kind, *_inside(run, x, states, params), parts=True)
    return [Value(call, name) for name in (*(r.name for r in results), *run.kept)]


def recurrent_backward(
    call: Aten, kind: str, dys: Sequence[Value], x: Value, states: Sequence[Value],
    params: Sequence[Value], kept: Sequence[Value],
) -> Sequence[Value]:  # fmt: skip
    """The gradients of x, states and parameters."""
    run = _Recalling(call, iter([v.name for v in kept]))
    results = layer(run, kind, *_inside(run, x, states, params), parts=True)
    given = {r.name: dy.name for r, dy in zip(results, dys, strict=True)}
    wanted = [v.name for v in (x, *states, *params)]
    found = adjoints(call, run.nodes, given, wanted)
    return [Value(call, found.get(name) or filled(call, name)) for name in wanted]


def _inside(
    run: Recorder, x: Value, states: Sequence[Value], params: Sequence[Value]
) -> tuple[Value, list[Value], list[Value]]:
    """The operands as values of ``run``."""
    firsts, weights = ([Value(run, v.name) for v in values] for values in (states, params))
    return Value(run, x.name), firsts, weights


RECURRENT_TRAINING: Handlers = overloads(
    {"modelcc.recurrent": recurrent, "modelcc.recurrent_backward": recurrent_backward}
)
