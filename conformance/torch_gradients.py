"""torch's operators through ``torch.compile(backend="modelcc")``, forward and backward."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._dynamo.utils import counters

from conformance.torch_database import PASSED, REFUSED, Half, Tensors, Wrapped, first_line, judged
from modelcc.ir.errors import ModelError
from modelcc.torch.dynamo import BackendRequest, compiled_by
from modelcc.torch.partition import Parted


@dataclass
class Seen:
    """The graphs that were compiled."""

    graphs: list[Parted] = field(default_factory=list[Parted])

    def note(self, _: str, parts: Parted) -> None:
        self.graphs.append(parts)

    def elsewhere(self) -> str:
        """Operators that PyTorch ran, as text; empty if all were compiled."""
        names = sorted({p.operator for graph in self.graphs for p in graph.problems})
        if counters["graph_break"] or not self.graphs:
            names.append("what Dynamo does not trace")
        return ", ".join(names)


def attempt(op: Any, some: Sequence[Any]) -> str:
    """The outcome of samples: results and gradients of all in one function."""
    module = Wrapped(op, some, gradients=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = differentiated(module, module.tensors())
        except Exception as error:  # torch may raise anything
            return f"{REFUSED}: {first_line(error)}"
        seen = Seen()
        outcome = _compiled(op, module, expected, seen)
        if not outcome.startswith(PASSED):
            theirs = _compiled(op, module, expected, None)
            if not theirs.startswith(PASSED):
                return f"{REFUSED}: its own aot_eager: {theirs}"
    elsewhere = seen.elsewhere()
    return f"{outcome}, in part by PyTorch: {elsewhere}" if elsewhere else outcome


def _compiled(op: Any, module: Wrapped, expected: Tensors, seen: Seen | None) -> str:
    """By modelcc, or as a reference by PyTorch's own tracing without a compiler."""
    torch.compiler.reset()
    counters.clear()
    backend: Any = "aot_eager"
    if seen is not None:
        backend = partial(
            compiled_by,
            BackendRequest({"threads": 1, "optimize": 0, "cache": None}, observer=seen.note),
        )
    try:
        found = differentiated(torch.compile(module, backend=backend), module.tensors())
    except ModelError as error:
        return f"refused: {first_line(error)}"
    except Exception as error:
        inner = getattr(error, "inner_exception", error)
        kind = "refused" if isinstance(inner, ModelError) else f"crash: {type(inner).__name__}"
        return f"{kind}: {first_line(inner)}"
    return judged(op, found, expected, lambda: _wide(module))


def _wide(module: Wrapped) -> Tensors:
    wide = module.widened()
    return differentiated(wide, wide.tensors())


def differentiated(function: Callable[..., Tensors], inputs: Tensors) -> list[torch.Tensor]:
    """Results, and gradients of all inputs for random output gradients; 0 for unused ones."""
    torch.manual_seed(0)
    results = list(function(*inputs))
    smooth = [y for y in results if y.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    gradients: Sequence[torch.Tensor | None] = ()
    if smooth and wanted:
        torch.manual_seed(1)
        given = [_random(y) for y in smooth]
        gradients = torch.autograd.grad(smooth, wanted, given, allow_unused=True)
    pairs = zip(wanted, gradients, strict=False)
    return [y.detach() for y in results] + [
        torch.zeros_like(x) if dx is None else dx for x, dx in pairs
    ]


def _random(like: torch.Tensor) -> torch.Tensor:
    """The same numbers whatever the layout and width of ``like``."""
    dtype = torch.complex64 if like.is_complex() else torch.float32
    return torch.randn(like.shape, dtype=dtype).to(like.dtype)


GRADIENTS = Half(attempt, gradients=True)
