"""LLVM module text of loop-level functions.

``func @relu(%x: f32[n], %y: mut f32[n]; n)`` with a parallel loop becomes three functions::

    define void @relu(ptr noalias readonly %x, ptr noalias %y, i64 %n, ptr %pool)
    define internal void @relu.range.body(ptr %context, i64 %begin, i64 %end, i32 %thread)
    define internal void @relu.range(ptr noalias readonly %x, ptr noalias %y, i64 %n, i64 %.begin,
                                     i64 %.end)

The last runs iterations ``begin … end-1``; its parameters let LLVM know what does not alias.  The
pool calls the second; without a pool (null), or where the loop's ``when`` does not hold, the first
calls the last for all iterations.  A kernel for groups of threads is one function, with their
shared memory besides it.  A function without a parallel loop has no pool parameter.  One with
checks takes ``ptr %faults`` before the pool: two i64 for each of their numbers, of which a check
that fails sets the first to 1 and the second to the index, and returns; kernels for groups take it
before the sizes, and after these a tensor map, which the driver encodes, for each tensor of which
they copy boxes.  With programmatic dependent launch, a kernel waits, and then calls its body
(``ahead.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Range
from modelcc.ir.library import Callee, LibraryFunction, meaning_of
from modelcc.ir.loop import Arrive, Buffer, Function, ParallelCall, Parameter
from modelcc.ir.loop_traversal import FAULTS, checks_in, statements, takes_pool, tile_maps
from modelcc.ir.shared_layout import shared_layout
from modelcc.ir.tiles import TileMap
from modelcc.ir.types import I64
from modelcc.passes.loop.outline_parallel import outline_parallel
from modelcc.targets.llvm.ahead import (
    PREFETCH,
    PREFETCH_WORDS,
    WAITING,
    Beginning,
    operand_name,
    own_parameter,
    waiting_kernel,
)
from modelcc.targets.llvm.code import Code, LlvmValue
from modelcc.targets.llvm.dialect import LlvmGroups
from modelcc.targets.llvm.groups import kernel_size
from modelcc.targets.llvm.instructions import NONE, Instructions
from modelcc.targets.llvm.library_call import LibraryCallCode
from modelcc.targets.llvm.parallel import BODY, unpack_context
from modelcc.targets.llvm.statements import StatementCode
from modelcc.targets.llvm.tiles import MAP_BYTES, MAPS
from modelcc.targets.llvm.values import quoted, value_type


@dataclass(frozen=True)
class EmitOptions:
    """``attributes`` is the attribute group of every function (target CPU, vector width …);
    ``triple`` the LLVM target triple, empty for the one the module is compiled for;
    ``instructions`` are what the processor has beyond what all have.  With ``groups`` functions are
    kernels for groups of threads."""

    attributes: str = "nounwind"
    triple: str = ""
    instructions: Instructions = NONE
    groups: LlvmGroups | None = None


PLAIN = EmitOptions()
_PLAIN = re.compile(r'(?<![\w."%@])ptr(?! addrspace)(?![\w."])')
"""A pointer to the generic address space."""


def emit_llvm(functions: Sequence[Callee], options: EmitOptions = PLAIN) -> str:
    """LLVM IR text of a module that defines ``functions``.

    Raises ``NotImplementedError`` for elementary functions that ``expand_math`` has not expanded
    and ``TypeError`` for element types without LLVM arithmetic.
    """
    declarations: dict[str, None] = {}
    definitions = [text for f in functions for text in _definitions(f, declarations, options)]
    if options.groups is not None and options.groups.ahead:
        definitions.append(WAITING)
        if any(map(_prefetched, map(meaning_of, functions))):
            definitions.append(PREFETCH)
            declarations |= dict.fromkeys(PREFETCH_WORDS)
    return module_text(definitions, declarations, options)


def module_text(
    definitions: Sequence[str], declarations: dict[str, None], options: EmitOptions
) -> str:
    """Definitions, sorted declarations and the attribute group, as one module."""
    head = [f'target triple = "{options.triple}"'] if options.triple else []
    tail = ["\n".join(sorted(declarations))] if declarations else []
    group = f"attributes #0 = {{ {options.attributes} }}"
    flags = [options.groups.flags] if options.groups is not None and options.groups.flags else []
    return "\n\n".join([*head, *definitions, *tail, group, *flags]) + "\n"


def signature(callee: Callee) -> tuple[str, ...]:
    """LLVM types of the function's parameters."""
    function = meaning_of(callee)
    faults = ("ptr",) if checks_in(function) else ()
    pool = ("ptr",) if takes_pool(function) else ()
    sizes = ("i64",) * len(function.sizes)
    return ("ptr",) * len(function.parameters) + sizes + faults + pool


def _definitions(
    function: Callee, declarations: dict[str, None], options: EmitOptions
) -> list[str]:
    """A function, after those that its parallel loop becomes."""
    if isinstance(function, LibraryFunction):
        return [_library_definition(function, declarations)]
    if options.groups is not None:
        return _kernel(function, declarations, options, options.groups)
    function = outline_parallel(function)
    code = Code(declarations, options.instructions)
    pool = [f"ptr {code.local('pool')}"] if takes_pool(function) else []
    parameters = _bind_parameters(code, function)
    StatementCode(code).block(function.body)
    code.scope.block.terminator = "ret void"
    text = _definition(function.name, [*parameters, *pool], code, function.source)
    calls = [s for s in function.body if isinstance(s, ParallelCall)]
    return [*(part for call in calls for part in _outlined(call.outlined, code)), text]


def _kernel(
    function: Function, declarations: dict[str, None], options: EmitOptions, groups: LlvmGroups
) -> list[str]:
    """A function of groups, and their shared memory."""
    size, shared = kernel_size(function, groups), shared_layout(function)
    code = Code(declarations, options.instructions, groups, function.name)
    parameters = _bind_parameters(code, function)
    results = frozenset(
        p.buffer.name for p in function.parameters if p.mutable and not function.early
    )
    StatementCode(code, shared, results).block(function.body)
    code.scope.block.terminator = "ret void"
    comment = f"; {', '.join(function.source)}\n" if function.source else ""
    body = code.text()
    if groups.generic:
        body = _PLAIN.sub(f"ptr addrspace({groups.generic})", body)
    head = f"define {groups.convention} void @{quoted(function.name)}"
    if groups.ahead:
        own = [
            own_parameter(text, n < len(function.parameters) and function.parameters[n].constant)
            for n, text in enumerate(parameters)
        ]
        operands = [
            (operand_name(text), p.prefetched)
            for text, p in zip(parameters, function.parameters, strict=False)
            if p in _prefetched(function)
        ]
        beginning = Beginning(tuple(operands), max(function.resident, 1), function.early)
        text = comment + waiting_kernel(
            function.name, f"{head}({', '.join(own)}) #0 {size}", parameters, body, beginning
        )
    else:
        text = f"{comment}{head}({', '.join(parameters)}) #0 {size} {{\n{body}\n}}"
    return ["\n".join(code.globals), text] if code.globals else [text]


def _prefetched(function: Function) -> tuple[Parameter, ...]:
    """Parameters that are worth prefetching before the function begins."""
    return tuple(p for p in function.parameters if p.prefetched)


def _library_definition(function: LibraryFunction, declarations: dict[str, None]) -> str:
    code = Code(declarations)
    parameters = _bind_parameters(code, function.meaning)
    LibraryCallCode(code, function.call).emit()
    code.scope.block.terminator = "ret void"
    return _definition(function.name, parameters, code, function.meaning.source)


def _outlined(function: Function, outer: Code) -> list[str]:
    """The function, and the one that the pool calls."""
    code = Code(outer.declarations, outer.instructions)
    parameters = _bind_parameters(code, function)
    StatementCode(code).block(function.body)
    code.scope.block.terminator = "ret void"
    unpacking = Code(outer.declarations)
    head = unpack_context(unpacking, function)
    # Inlined into both callers, the kernel would be compiled twice.
    return [
        _definition(function.name, parameters, code, (), "internal ", "noinline "),
        _definition(function.name + BODY, head, unpacking, (), "internal "),
    ]


def _definition(
    name: str,
    parameters: Sequence[str],
    code: Code,
    source: Sequence[str],
    linkage: str = "",
    attribute: str = "",
) -> str:
    comment = f"; {', '.join(source)}\n" if source else ""
    head = f"define {linkage}void @{quoted(name)}({', '.join(parameters)}) {attribute}#0"
    return f"{comment}{head} {{\n{code.text()}\n}}"


def _bind_parameters(code: Code, function: Function) -> list[str]:
    texts: list[str] = []
    groups = code.groups
    space = f" addrspace({groups.memory})" if groups else ""
    meets = any(isinstance(s, Arrive) for s in statements(function.body))
    for parameter in function.parameters:
        operand = code.local(parameter.buffer.name)
        if meets and parameter.mutable:  # other groups write to it, too
            parameter = replace(parameter, shared=True)
        texts.append(_pointer(operand, parameter, space))
        if groups:
            operand = _generic(code, operand, groups)
        code.scope.buffers[parameter.buffer.name] = (operand, parameter.buffer)
    for value in function.values:
        operand, type_ = code.local(value.name), value_type(value.dtype, value.lanes)
        code.scope.values[value.name] = LlvmValue(operand, type_)
        texts.append(f"{type_} {operand}")
    if groups:
        texts += _faults(code, function)
    for name in function.sizes:
        operand = code.local(name)
        code.scope.symbols[name] = operand
        code.scope.bounds[name] = Range(0, None)
        texts.append(f"i64 {operand}")
    if groups:
        texts += _maps(code, function)
    return texts if groups else [*texts, *_faults(code, function)]


def _faults(code: Code, function: Function) -> list[str]:
    """Where checks are recorded; in kernels for groups, right after the other buffers."""
    count, groups = checks_in(function), code.groups
    if not count:
        return []
    operand = code.local("faults")
    space = f" addrspace({groups.memory})" if groups else ""
    text = f"ptr{space} noalias captures(none) align 8 {operand}"
    if groups:
        operand = _generic(code, operand, groups)
    code.scope.buffers[FAULTS] = (operand, Buffer(FAULTS, I64, 2 * count, align=8))
    return [text]


def _maps(code: Code, function: Function) -> list[str]:
    """Tensor maps, which the driver encodes, and their list besides the kernel."""
    maps = tile_maps(function)
    for number, each in enumerate(maps):
        code.maps[each] = code.local(f"map{number}")
    if maps and code.groups:
        code.globals.append(_maps_note(function, maps, code.groups))
    attributes = f'byval([{MAP_BYTES} x i8]) align 64 "nvvm.grid_constant"'
    return [f"ptr {attributes} {operand}" for operand in code.maps.values()]


def _maps_note(function: Function, maps: Sequence[TileMap], groups: LlvmGroups) -> str:
    """A text of the argument's number, type, offset, sizes, strides and box of each map."""
    buffers = {p.buffer.name: (n, p.buffer.dtype) for n, p in enumerate(function.parameters)}
    described = [
        [buffers[m.source][0], str(buffers[m.source][1]), str(m.offset), [*map(str, m.sizes)],
         [*map(str, m.strides)], m.box]
        for m in maps
    ]  # fmt: skip
    data = json.dumps({"sizes": function.sizes, "maps": described}, separators=(",", ":")).encode()
    text = "".join(f"\\{byte:02x}" for byte in data)
    name = quoted(function.name + MAPS)
    return f'@{name} = addrspace({groups.memory}) constant [{len(data)} x i8] c"{text}"'


def _generic(code: Code, operand: str, groups: LlvmGroups) -> str:
    """A pointer to global memory as a generic one."""
    return code.emit(f"addrspacecast ptr addrspace({groups.memory}) {operand} to ptr")


def _pointer(operand: str, parameter: Parameter, space: str = "") -> str:
    alone = "" if parameter.shared else " noalias"
    access = "" if parameter.mutable else " readonly"
    return f"ptr{space}{alone} captures(none){access} align {parameter.buffer.align} {operand}"
