"""Random scheduled programs, and an executor that notices when memory is lost.

The executor knows nothing of storages or plans: it follows a lowered program's bindings, fills
every buffer a kernel writes with that tensor's tag, and checks the tags of what a kernel reads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Range, Sym, evaluate, substitute
from modelcc.ir.loop import Buffer, Function, Parameter
from modelcc.ir.program import CopyTensor, Definition, Launch, Program, Step
from modelcc.ir.tensor import View
from modelcc.ir.types import F32, Array, TensorType
from modelcc.passes.program.timeline import timeline

ALIGNMENT = 64
Region = Array | list[int | None]


@dataclass(frozen=True)
class Call(Launch):
    """A launch that knows its function."""

    function: Function = field(kw_only=True)


def kernel(
    inputs: Sequence[str], outputs: Sequence[str], types: dict[str, TensorType], **options: Any
) -> Call:
    """A call of an empty function with one parameter for each tensor, named after their sizes."""
    arguments = (*inputs, *outputs)
    shared = {name for pair in options.get("in_place", ()) for name in pair}
    parameters = tuple(
        Parameter(
            Buffer(f"b{i}", F32, types[n].physical.size(types[n].shape)), n in outputs, n in shared
        )
        for i, n in enumerate(arguments)
    )
    given, made = ([str(types[n].elements) for n in names] for names in (inputs, outputs))
    apart = "" if not shared else " in place"
    name = f"{'_'.join(given)} to {'_'.join(made)}{apart}"
    return Call(name, arguments, function=Function(name, parameters, (), ()), **options)


def program_of(
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    steps: Sequence[Step],
    types: dict[str, TensorType],
    **rest: Any,
) -> Program:
    """The program of such calls, and of views."""
    callees = {step.callee: step.function for step in steps if isinstance(step, Call)}
    return Program("p", inputs, outputs, tuple(steps), types, tuple(callees.values()), **rest)


def tensor(*shape: Index) -> TensorType:
    return TensorType(shape, F32)


@st.composite
def scheduled_programs(draw: st.DrawFn, symbolic: bool = False, states: int = 0) -> Program:
    """Random programs with views, in-place candidates, partial writers, many kinds of outputs, and
    up to so many ``states``."""
    n, m = Sym("n"), Sym("m")
    sizes = [1, 7, 16, 100, 250]
    if symbolic:
        sizes += [n, 3 * n + 5, 16 * n, n * m, 64 * m, 2 * m + n]
    types = {f"x{i}": tensor(draw(st.sampled_from(sizes))) for i in range(draw(st.integers(1, 2)))}
    types |= {f"s{i}": tensor(draw(st.sampled_from([7, 16]))) for i in range(states)}
    inputs = tuple(types)
    types["w"] = tensor(16)
    live = [*inputs, "w"]
    items: list[Step] = []
    for i in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["kernel", "kernel", "kernel", "in_place", "view", "parts"]))
        read = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3))
        new = f"t{i}"
        if kind == "view":
            types[new] = tensor(*types[read[0]].shape, 1)
            items.append(View(new, read[0]))
        elif kind == "in_place":
            types[new] = types[read[0]]
            items.append(kernel(read, [new], types, in_place=((new, read[0]),)))
        elif kind == "parts":
            types[new] = tensor(draw(st.sampled_from(sizes)))
            items.append(kernel(read[:1], [new], types, partial=(new,)))
            items.append(kernel(read[1:], [new], types, partial=(new,)))
        else:
            types[new] = tensor(draw(st.sampled_from(sizes)))
            items.append(kernel(read, [new], types))
        live.append(new)
    outputs = tuple(draw(st.lists(st.sampled_from(live), min_size=1, max_size=3)))
    dims = {"n": Range(1, None), "m": Range(1, 300)} if symbolic else {}
    constants = {"w": Constant(np.zeros(16, np.float32))}
    kept: dict[str, str] = {}
    for before in inputs[-states:] if states else ():
        fitting = [n for n in live if types[n] == types[before] and n not in (*outputs, *kept)]
        if fitting:
            kept[draw(st.sampled_from(fitting))] = before
    made = (*outputs, *kept)
    return program_of(inputs, made, items, types, constants=constants, dims=dims, states=kept)


def definition_values(
    definitions: Sequence[Definition], values: Mapping[str, int]
) -> dict[str, int]:
    """``values`` and the value of every definition."""
    known = dict(values)
    for definition in definitions:
        value = substitute(definition.value, known)
        if not isinstance(value, int):
            raise KeyError(f"{definition.symbol} = {value} needs values of more dimensions")
        known[definition.symbol] = value
    return known


def execute(scheduled: Program, program: Program, values: dict[str, int]) -> None:
    """Run ``program`` on tags; AssertionError where a kernel would read or write wrong memory."""
    bindings = program.placed.bindings
    known = definition_values(program.placed.definitions, values)
    memory: dict[str, list[int | None]] = {
        name: [None] for name, b in bindings.items() if b.place != "arena"
    }
    memory |= {name: memory[before] for name, before in program.states.items()}
    size = evaluate(program.placed.arena, known)
    assert size % ALIGNMENT == 0
    arena = np.full(size, -1)
    bases = timeline(scheduled).bases
    tag = {name: i for i, name in enumerate(scheduled.types)}

    def region(bound: str, name: str) -> Region:
        binding = bindings[bound]
        if binding.place != "arena":
            return memory[bound]
        start = evaluate(binding.offset, known)
        end = start + evaluate(scheduled.types[name].bytes, known)
        assert start % ALIGNMENT == 0 and 0 <= start <= end <= size
        return arena[start:end]

    def check(bound: str, name: str) -> None:
        expected = tag[bases.get(name, name)]
        assert all(t == expected for t in region(bound, name)), f"{name} is lost in {bound}"

    for name in (*scheduled.inputs, *scheduled.constants):
        if name in memory:
            memory[name][0] = tag[name]
    launches = [s for s in program.steps if isinstance(s, Launch)]
    parts: set[str] = set()
    for call, launch in zip(timeline(scheduled).calls.values(), launches, strict=True):
        assert isinstance(call, Launch)
        pairs = list(zip(launch.arguments, call.arguments, strict=True))
        outputs = scheduled.results(call)
        for bound, name in pairs:
            if name not in outputs:
                check(bound, name)
        _check_aliases(call, outputs, pairs, region)
        for bound, name in pairs:
            if name in outputs:
                updated = bound in program.states
                assert bindings[bound].place in (("input",) if updated else ("arena", "output"))
                _write(region(bound, name), tag[name], name in call.partial, parts, name)
    for step in program.steps:
        if isinstance(step, CopyTensor):
            source, target = (
                memory[n] if n in memory else region(n, n.removesuffix(".kept"))
                for n in (step.source_tensor, step.target)
            )
            target[:] = [source[0]] * len(target)
            assert step.target.endswith(".kept") or step.target in program.outputs
    for bound, name in zip(program.outputs, scheduled.outputs, strict=True):
        assert bindings[bound].place == ("input" if bound in program.states else "output")
        check(bound, name)


def _write(target: Region, tag: int, is_partial: bool, parts: set[str], name: str) -> None:
    """The first partial writer fills the first half, the second the other."""
    if isinstance(target, list):
        target[:] = [tag]
        return
    if not is_partial:
        target[:] = tag
        return
    half = len(target) // 2
    target[slice(half, None) if name in parts else slice(0, half)] = tag
    parts.add(name)


def _check_aliases(
    call: Launch,
    outputs: tuple[str, ...],
    pairs: list[tuple[str, str]],
    region: Callable[[str, str], Region],
) -> None:
    allowed = set(call.in_place)
    for bound, name in pairs:
        if name in outputs:
            for other_bound, other in pairs:
                if other == name or (name, other) in allowed:
                    continue
                a, b = region(bound, name), region(other_bound, other)
                if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
                    assert not len(a) or not len(b) or not np.shares_memory(a, b)
                else:
                    assert a is not b
