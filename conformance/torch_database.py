"""torch's own database of operators: entries, their samples, and their tolerances."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal.opinfo.core import DecorateInfo
from torch.utils import _pytree as pytree

PASSED = "passed"
"""Prefix of reasons of correct results."""
WIDE = f"{PASSED}, as with 64 bits, from which eager's 32 are about as far or farther"
REFUSED = "refused by torch"
"""Prefix of reasons if torch itself fails on the sample."""
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
"""The first of these that an entry supports is tested."""

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Outcome:
    """The outcome of sample ``index`` of an entry: ``reason`` starts with its kind."""

    entry: str
    index: int
    reason: str

    @property
    def passed(self) -> bool:
        return self.reason.startswith(PASSED)

    @property
    def refused(self) -> bool:
        return self.reason.startswith(REFUSED)


@dataclass(frozen=True)
class Share:
    """One sample in ``of`` of each entry, from number ``first`` on, except ``known`` ones."""

    of: int = 1
    first: int = 0
    known: frozenset[tuple[str, int]] = frozenset()

    def chosen(self, name: str, made: Sequence[Any]) -> list[tuple[int, Any]]:
        """Samples of an entry with their indices; one if there are ``of`` or fewer."""
        start = self.first % max(1, min(self.of, len(made)))
        some = ((i, made[i]) for i in range(start, len(made), self.of))
        return [(i, sample) for i, sample in some if (name, i) not in self.known]


@dataclass(frozen=True)
class Half:
    """One way to test an entry: ``attempt`` returns the outcome of some samples in one graph."""

    attempt: Callable[[Any, Sequence[Any]], str]
    gradients: bool

    def entries(self, pattern: str) -> list[Any]:
        """Entries with a tested dtype, whose names match."""
        names = re.compile(pattern)
        return [op for op in database.op_db if names.search(label(op)) and self._tried(op)]

    def _tried(self, op: Any) -> bool:
        if self.gradients:
            return op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
        return dtype_of(op) is not None

    def samples(self, op: Any, share: Share) -> list[tuple[int, Any]]:
        """Some samples, with their indices."""
        torch.manual_seed(0)
        dtype = torch.float32 if self.gradients else dtype_of(op)
        made = op.sample_inputs("cpu", dtype, requires_grad=self.gradients)
        return share.chosen(label(op), list(made))


FREE = re.compile(r"svd$|eigh$|eig$")
"""Entries whose results are vectors of arbitrary sign; samples define which of them are
compared."""


UNORDERED = re.compile(r"linalg\.eig(vals)?$")
"""Entries whose results have arbitrary order; their vectors are arbitrary, too."""


class Wrapped(torch.nn.Module):
    """An operator called with some samples, whose tensors are inputs."""

    def __init__(self, op: Any, samples: Sequence[Any], gradients: bool = False) -> None:
        """``gradients``: only of outputs that each sample declares differentiable; nor are others
        compared for ``FREE`` ones."""
        super().__init__()
        calls = [((s.input, *s.args), s.kwargs) for s in samples]
        self._leaves, self._spec = pytree.tree_flatten(calls)
        self._op = op.op
        partly = gradients or FREE.search(op.name)
        self._unordered = UNORDERED.search(op.name) is not None
        self._chosen = [s.output_process_fn_grad for s in samples] if partly else None

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Copies of the samples' tensors."""
        given = (x for x in self._leaves if isinstance(x, torch.Tensor))
        return tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in given)

    def widened(self) -> Wrapped:
        """The same with 64-bit in place of 32-bit types."""
        wide = copy.copy(self)
        wide._leaves = [_wide(x) for x in self._leaves]
        return wide

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(x.clone() for x in tensors)  # in-place operators mutate a copy
        whole = [next(given) if isinstance(x, torch.Tensor) else x for x in self._leaves]
        calls = pytree.tree_unflatten(whole, self._spec)
        results = [self._op(*args, **kwargs) for args, kwargs in calls]
        if self._chosen is not None:
            results = [chosen(y) for chosen, y in zip(self._chosen, results, strict=True)]
        if self._unordered:
            results = [_in_order(y) for y in results]
        return [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def _in_order(found: Any) -> Any:
    """Eigenvalues, and associated results, in canonical order."""
    values, *others = found if isinstance(found, tuple) else (found,)
    order = (values.real + values.imag / 2).argsort(-1)
    own = [torch.take_along_dim(y, order[..., None, :], -1) for y in others]
    return [torch.take_along_dim(values, order, -1), *own]


def _wide(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and x.dtype == torch.float32:
        return x.detach().double().requires_grad_(x.requires_grad)
    return torch.float64 if x is torch.float32 else x


def label(op: Any) -> str:
    """The name of an entry, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def dtype_of(op: Any) -> torch.dtype | None:
    """The dtype that an entry is tested with."""
    return next((d for d in DTYPES if d in op.supported_dtypes("cpu")), None)


def judged(op: Any, ours: Tensors, theirs: Tensors, wide: Callable[[], Tensors]) -> str:
    """The outcome by the entry's tolerance, or if the error against ``wide`` is within it, or at
    most twice eager's."""
    unequal = difference(op, ours, theirs)
    if not unequal:
        return PASSED
    try:
        exact = zip(wide(), theirs, strict=True)
        best = [w.to(y.dtype) if y.is_floating_point() else y for w, y in exact]
    except Exception:  # torch may raise anything
        return f"wrong: {unequal}"
    near = not difference(op, ours, best) or _error(ours, best) <= 2 * _error(theirs, best)
    return WIDE if near else f"wrong: {unequal}"


def _error(found: Tensors, exact: Tensors) -> float:
    """The largest error; infinite where only one is NaN."""
    apart = [(x.double() - y.double()).abs() for x, y in zip(found, exact, strict=True)]
    alike = [(x == y) | (x.isnan() & y.isnan()) for x, y in zip(found, exact, strict=True)]
    worst = [d[~same] for d, same in zip(apart, alike, strict=True)]
    return max((float(d.nan_to_num(math.inf).max()) for d in worst if d.numel()), default=0.0)


def difference(op: Any, ours: Tensors, theirs: Tensors, exact: bool = True) -> str:
    """How results differ by the entry's tolerance, or only by type and shape; empty if not."""
    try:
        for mine, yours in zip(ours, theirs, strict=True):
            assert mine.shape == yours.shape, f"shape {mine.shape}, not {yours.shape}"
            assert mine.dtype == yours.dtype, f"dtype {mine.dtype}, not {yours.dtype}"
            if exact:
                close = tolerance(op, yours.dtype)
                torch.testing.assert_close(mine, _dense(yours), equal_nan=True, **close)
    except (AssertionError, ValueError) as error:
        return " ".join(str(error).split())[:200]
    return ""


def _dense(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous() if x.layout == torch.strided else x


def tolerance(op: Any, dtype: torch.dtype) -> dict[str, float]:
    """The largest tolerance of the entry's decorators; empty for torch's defaults."""
    found = list(_overrides(op, dtype))
    default = 1.3e-6 if dtype == torch.float32 else 1e-7
    if not found or not dtype.is_floating_point:
        return {}
    return {"atol": max(t.atol for t in found), "rtol": max(default, *(t.rtol for t in found))}


def _overrides(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    for info in op.decorators:
        if isinstance(info, DecorateInfo) and info.device_type in (None, "cpu"):
            for each in info.decorators:
                if dtype in getattr(each, "overrides", {}):
                    yield each.overrides[dtype]


def first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
