"""What a worker compiles: models of files, small ones, and samples of ops.

Samples are compiled as in the tests of ops: one op, with inputs as operands; and again with
constants if there are operands of static sizes after the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.replay.records import Job
from benchmarks.replay.small import SMALL
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Sym, substitute
from modelcc.ir.types import TensorType, dtype_of
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes

Case = tuple[str, Callable[[], Any]]
"""A name, and a function that builds the model."""


def cases_of(job: Job) -> Iterator[Case]:
    """Cases of `job`; names describe them, so that they match in other trees."""
    if job.kind == "file":
        yield job.label, lambda: job.what
    elif job.kind == "small":
        yield from ((name, SMALL[name]) for name in job.what.split(","))
    else:
        part, parts = map(int, job.what.split("/"))
        yield from (case for case in _samples() if crc32(case[0].encode()) % parts == part - 1)


def _samples() -> Iterator[Case]:
    """Every sample of every op that has code, with unique names."""
    seen = Counter[str]()
    for op in MCC.ops:
        if not (op.pure and (op.has("compute") or op.has("algorithm"))):
            continue
        for sample in op.samples:
            for constant in (False, True) if _has_known(sample) else (False,):
                name = _name(op, sample) + (" of constants" if constant else "")
                seen[name] += 1
                number = f" #{seen[name]}" if seen[name] > 1 else ""
                yield f"{name}{number}", _maker(op, sample, constant)


def _has_known(sample: Any) -> bool:
    """Whether an operand after the first, which is not one, may be a constant."""
    known = [isinstance(t, TensorType) and t.is_static for t in sample.operands[1:]]
    return any(known) and isinstance(sample.operands[0], TensorType)


def _maker(op: Any, sample: Any, constant: bool) -> Callable[[], Any]:
    return lambda: _graph(op(**sample.attributes), op.__name__, sample, constant)


def _graph(op: Any, name: str, sample: Any, constant: bool) -> Any:
    """One node; dimensions that no input defines are constants."""
    told = {e.name for t in _types(sample) for e in t.shape if isinstance(e, Sym)}
    numbers = {n: size for n, size in sizes(op, sample).items() if n not in told}
    build = GraphBuilder(name)
    operands: list[str] = []
    values = arrays(op, sample)
    for position, (operand, value) in enumerate(zip(sample.operands, values, strict=True)):
        if value is None:
            operands.append("")
        elif isinstance(operand, np.ndarray) or (constant and position and operand.is_static):
            operands.append(build.constant(value))
        else:
            shape = tuple(substitute(e, numbers) for e in operand.shape)
            operands.append(build.input(f"x{position}", TensorType(shape, operand.dtype)))
    return build.build(list(build.add(op.substitute(numbers), *operands)))


def _types(sample: Any) -> list[TensorType]:
    return [t for t in sample.operands if isinstance(t, TensorType)]


def _name(op: Any, sample: Any) -> str:
    """The op with its operands and attributes."""
    operands = ", ".join(map(_operand, sample.operands))
    attributes: Mapping[str, Any] = sample.attributes
    given = "".join(f", {name}={value!r}" for name, value in attributes.items())
    return f"{op.__name__}({operands}{given})"


def _operand(operand: Any) -> str:
    if operand is None:
        return "-"
    if isinstance(operand, TensorType):
        return f"{operand.dtype}[{','.join(map(str, operand.shape))}]"
    content = crc32(repr(operand.tolist()).encode())
    return f"{dtype_of(operand)}[{','.join(map(str, operand.shape))}]={content:08x}"
