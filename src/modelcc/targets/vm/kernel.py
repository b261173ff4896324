"""Kernels of the interpreter: parameterised loop functions, with the bounds of their accesses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from modelcc.ir.condition import COMPARISONS, Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, parse_index
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import checks_in
from modelcc.targets.vm.accesses import bounded
from modelcc.targets.vm.generalise import generalise
from modelcc.targets.vm.hull import MOST, WORD, NoHullError, is_value

FORMAT = 1
"""Version of the list of kernels."""


@dataclass(frozen=True)
class VmKernel:
    """A loop function whose sizes are the elements of its buffers, in order, then its parameters.

    It accesses nothing but its buffers if index parameters are in 0 … ``MOST`` (of
    :mod:`modelcc.targets.vm.hull`), the ``conditions`` hold, and ``small`` and all operands of
    conditions fit signed 32-bit integers.
    """

    function: Function
    conditions: tuple[Condition, ...]
    small: tuple[Index, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that identify it: equal kernels have the same."""
        parts = [print_function(self.function), *map(str, self.conditions), *map(str, self.small)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Its name in C."""
        return f"kernel_{self.digest}"

    @property
    def checks(self) -> int:
        """How many numbers its checks have."""
        return checks_in(self.function)


@dataclass(frozen=True)
class KernelUse:
    """A kernel with the numbers of one launch; ``own`` are the bytes of its buffers besides those
    of the launch, ``given`` the parameters that are sizes of the launch."""

    kernel: VmKernel
    parameters: tuple[int, ...]
    own: tuple[int, ...]
    given: tuple[int, ...]


def use_of(function: Function, runs: Sequence[Mapping[str, int]]) -> KernelUse:
    """``function`` as a kernel of the interpreter, called with the sizes of ``runs``.

    Its numbers are those of the first one.  :class:`ModelError` if bounds cannot be determined.
    """
    general = generalise(function, runs)
    values = [
        {**general.values, **dict(zip(general.sizes, run.values(), strict=True))} for run in runs
    ]
    try:
        plain = replace(general.function, name="kernel", source=())
        found = bounded(plain, values)
    except NoHullError as error:
        message = f"bytecode has no form of {function.name!r}: {error}"
        raise ModelError(message, function.source, "--emit c has one") from error
    kernel = VmKernel(found.function, found.conditions, found.small)
    own = kernel.function.parameters[general.given :]
    sizes_of_own = (general.values[str(p.buffer.size)] * p.buffer.dtype.bytes for p in own)
    names = kernel.function.sizes
    limits = {name: WORD if is_value(name) else MOST for name in names}
    if any(abs(one[name]) > limits[name] for one in values for name in names):
        raise ModelError("a number of its layers is too large", function.source)
    numbers = tuple(general.values[name] for name in names)
    return KernelUse(kernel, numbers, tuple(sizes_of_own), tuple(map(names.index, general.sizes)))


def kernels_json(kernels: Iterable[VmKernel]) -> str:
    """The list of kernels of a firmware, for which models are compiled."""
    found = [
        {
            "id": kernel.digest,
            "function": print_function(kernel.function),
            "conditions": [[str(c.left), c.comparison, str(c.right)] for c in kernel.conditions],
            "small": [str(e) for e in kernel.small],
        }
        for kernel in kernels
    ]
    return json.dumps({"modelcc_kernels": FORMAT, "kernels": found}, indent=1) + "\n"


def read_kernels(text: str, path: str) -> tuple[VmKernel, ...]:
    """The kernels of a list; :class:`ModelError` if it is invalid."""
    try:
        found: Any = json.loads(text)
        if found["modelcc_kernels"] != FORMAT:
            raise ModelError(f"it has version {found['modelcc_kernels']}, not {FORMAT}", (path,))
        kernels = tuple(map(_kernel, found["kernels"]))
        wrong = [k.digest for k, one in zip(kernels, found["kernels"], strict=True)
                 if k.digest != one["id"]]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        hint = "--firmware takes the kernels.json that --emit interpreter wrote"
        raise ModelError("it is no list of kernels", (path,), hint) from error
    if wrong:
        raise ModelError(f"kernel {wrong[0]} is not what its name says", (path,))
    return kernels


def _kernel(one: Any) -> VmKernel:
    conditions = [
        Condition(parse_index(left), COMPARISONS[comparison], parse_index(right))
        for left, comparison, right in one["conditions"]
    ]
    function = parse_function(one["function"])
    return VmKernel(function, tuple(conditions), tuple(map(parse_index, one["small"])))


def merged(*lists: Sequence[VmKernel]) -> tuple[VmKernel, ...]:
    """Unique kernels, sorted by name."""
    found = {kernel.digest: kernel for kernels in lists for kernel in kernels}
    return tuple(found[digest] for digest in sorted(found))
