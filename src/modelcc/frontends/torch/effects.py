"""Checks of values among PyTorch's operators, which tokens keep in order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import fx
from torch._higher_order_ops.effects import with_effects

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.torch.aten import Aten, overloads
from modelcc.ops.arithmetic import Value

CHECK = "aten._linalg_check_errors.default"


def is_value_check(node: fx.Node) -> bool:
    """Whether ``node`` raises if a tensor is not as it should be, and does nothing else."""
    return node.target is with_effects and str(node.args[1]) == CHECK


def value_check(node: fx.Node) -> tuple[Callable[[torch.Tensor], object], fx.Node]:
    """PyTorch's operator of a check, and the tensor that it is called with."""
    _, check, tensor, *rest = cast("Any", node.args)
    names = [argument.name for argument in check._schema.arguments[1:]]
    return partial(check, **dict(zip(names, rest, strict=False)), **node.kwargs), tensor


def without_checks(node: fx.Node) -> fx.Node:
    """The token from which that in ``node`` comes by checks alone; what is no token is itself."""
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


def unchecked(call: Aten, token: Value, check: object, *_: Any) -> Sequence[Value | None]:
    """An exported program goes on where PyTorch would have raised."""
    if str(check) != CHECK:
        unsupported(f"effects of {check}")
    return token, None


EFFECTS = overloads({"higher_order.with_effects": unchecked, "with_effects": unchecked})
"""Operators that pass a token on, which keeps them in order."""
