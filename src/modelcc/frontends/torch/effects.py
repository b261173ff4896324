"""Value checks among PyTorch's operators, ordered by effect tokens."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import fx
from torch._higher_order_ops.effects import with_effects

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.torch.aten import Aten, overloads
from modelcc.ir.index import Range
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.views import cast as cast_to

CHECK = "aten._linalg_check_errors.default"


def is_value_check(node: fx.Node) -> bool:
    """Whether ``node`` raises if a tensor is invalid, and has no other effect."""
    return node.target is with_effects and str(node.args[1]) == CHECK


def value_check(node: fx.Node) -> tuple[Callable[[torch.Tensor], object], fx.Node]:
    """PyTorch's operator of a check, and the tensor it is applied to."""
    _, check, tensor, *rest = cast("Any", node.args)
    names = [argument.name for argument in check._schema.arguments[1:]]
    return partial(check, **dict(zip(names, rest, strict=False)), **node.kwargs), tensor


def without_checks(node: fx.Node) -> fx.Node:
    """The token that the one in ``node`` derives from by checks alone; a node that is no token is
    itself."""
    while node.target is operator.getitem:
        whole, place = cast("tuple[fx.Node, int]", node.args)
        if place != 0 or not is_value_check(whole):
            break
        node = cast(fx.Node, whole.args[0])
    return node


def is_token(node: fx.Node) -> bool:
    """Whether ``node`` is a token of checks, and nothing else."""
    return bool(node.users) and all(
        is_value_check(user) and user.args[0] is node for user in node.users
    )


def checked(
    call: Aten, token: Value, check: object, info: Value, name: str, *_: Any
) -> Sequence[Value | None]:
    """A run of an exported program fails where PyTorch raises: unless all of ``info`` is 0."""
    if str(check) != CHECK:
        unsupported(f"effects of {check}")
    axes = tuple(range(info.type.rank))
    worst = of(ReduceMax(axes, keepdims=False), info) if axes else info
    (failed,) = call.emitter.read_sizes(cast_to(worst, I64).name, "failed_row", source=call.source)
    short = name.removeprefix("torch.")
    source = (*call.source, f"{short}: {_FAULTS.get(short, 'the matrix has no such factor')}")
    call.emitter.require([(failed, "<=", 0)], source)  # the maximum over no matrices is negative
    return token, None


_FAULTS = MappingProxyType({
    "linalg.cholesky": "the matrix is not positive-definite",
    "linalg.inv": "the matrix is singular",
    "linalg.solve": "the matrix is singular",
})  # fmt: skip
"""PyTorch's error messages for a matrix, by the function that its check names."""


def asserted(call: Aten, given: Value, message: str) -> None:
    """The run fails unless ``given``, a scalar, holds."""
    (held,) = call.emitter.read_sizes(
        cast_to(given, I64).name, "assertion", Range(0, 1), source=call.source
    )
    call.emitter.require([(held, "==", 1)], (*call.source, message))


EFFECTS = overloads({"higher_order.with_effects": checked, "with_effects": checked})
"""Operators that pass on an effect token, which orders them."""
