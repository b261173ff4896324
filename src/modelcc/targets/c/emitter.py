"""C file of loop-level functions.

``func @relu(%x: f32[n], %y: mut f32[n]; n)`` with a parallel loop becomes three functions::

    void relu(const float *restrict x, float *restrict y, int64_t n, void *pool)
    static void relu_body(void *context, int64_t begin, int64_t end, int32_t thread)
    static void relu_range(const float *restrict x, float *restrict y, int64_t n, int64_t begin,
                           int64_t end)

The last runs iterations ``begin … end-1``.  The pool calls the second; without a pool (NULL), or
where the loop's ``when`` does not hold, the first calls the last for all iterations.  A function
without a parallel loop has no pool parameter.
One with checks takes ``int64_t *faults`` before the pool: two for each of their numbers, of which a
check that fails sets the first to 1 and the second to the index, and returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import Range, Sym, symbols
from modelcc.ir.loop import Buffer, For, Function, Parameter
from modelcc.ir.loop_traversal import FAULTS, checks_in, names_used, parallel_loop
from modelcc.ir.types import I64
from modelcc.passes.loop.remove_unused import remove_unused
from modelcc.targets.c.code import Code, Named, Operand, folded, words_of
from modelcc.targets.c.expressions import ExpressionCode
from modelcc.targets.c.names import comment, identifier, symbol
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.statements import StatementCode, iterations
from modelcc.targets.c.values import memory_type


@dataclass(frozen=True)
class EmitOptions:
    """``static`` kernels are seen in their own file only.  ``head`` is a first comment."""

    static: bool = False
    head: str = ""


PLAIN = EmitOptions()


def emit_c(functions: Sequence[Function], options: EmitOptions = PLAIN) -> str:
    """C text of a file that defines ``functions``.

    Raises ``NotImplementedError`` for elementary functions that ``expand_math`` has not expanded
    and for vectors whose lanes are no power of two, ``TypeError`` for element types without
    arithmetic in C.
    """
    prelude = Prelude()
    return file_text(definitions(functions, prelude, options), prelude, options)


def definitions(functions: Sequence[Function], prelude: Prelude, options: EmitOptions) -> list[str]:
    """The functions' definitions, which use ``prelude``."""
    needed = map(remove_unused, functions)
    return [text for f in needed for text in _definitions(f, prelude, options)]


def file_text(parts: Sequence[str], prelude: Prelude, options: EmitOptions) -> str:
    """A whole file."""
    notes = "".join(f"\n * {comment(line)}".rstrip() for line in options.head.splitlines())
    head = [f"/*{notes}\n */"] if options.head else []
    return "\n\n".join([*head, prelude.text(), *parts]) + "\n"


def prototype(function: Function, static: bool = False) -> str:
    """The function's head, without a semicolon."""
    parameters = _bind_parameters(Code(), function)
    return f"{'static ' if static else ''}void {symbol(function.name)}({', '.join(parameters)})"


def _definitions(function: Function, prelude: Prelude, options: EmitOptions) -> list[str]:
    outlined: list[str] = []

    def parallel(code: Code, expressions: ExpressionCode, loop: For) -> None:
        outlined.extend(_parallel_loop(function, code, expressions, prelude, loop))

    code = Code()
    _bind_parameters(code, function)
    StatementCode(code, prelude, parallel).block(function.body)
    head = prototype(function, options.static)
    return [*outlined, _definition(head, code, function.source)]


def _definition(head: str, code: Code, source: Sequence[str] = ()) -> str:
    used = words_of(code.lines)
    unused = [name for name in code.scopes[0].taken if name not in used]
    if unused:
        code.line(", ".join(f"(void){name}" for name in sorted(unused)) + ";")
    notes = folded(f"/* {comment(', '.join(source))} */", "") if source else []
    return "\n".join([*notes, *folded(head, ""), "{", *code.lines, "}"])


def _bind_parameters(code: Code, function: Function) -> list[str]:
    texts: list[str] = []
    for parameter in function.parameters:
        name = code.fresh(parameter.buffer.name)
        code.scope.buffers[parameter.buffer.name] = (name, parameter.buffer)
        texts.append(_pointer(name, parameter))
    for size in function.sizes:
        name = code.fresh(size)
        code.scope.symbols[size] = name
        code.scope.bounds[size] = Range(0, None)
        texts.append(f"int64_t {name}")
    count = checks_in(function)
    if count:
        name = code.fresh("faults")
        buffer = Buffer(FAULTS, I64, 2 * count)
        code.scope.buffers[FAULTS] = (name, buffer)
        texts.append(_pointer(name, _local(buffer)))
    if parallel_loop(function):
        texts.append(f"void *{code.fresh('pool')}")
    return texts or ["void"]


def _pointer(name: str, parameter: Parameter) -> str:
    access = "" if parameter.mutable else "const "
    alone = "" if parameter.shared else "restrict "
    return f"{access}{memory_type(parameter.buffer.dtype)} *{alone}{name}"


# --- parallel loops


@dataclass(frozen=True)
class _Capture:
    """A name the loop body uses: its declaration as a parameter and as a field, and its operand
    where the loop stands."""

    name: str
    parameter: Parameter | None
    type: str
    operand: Operand
    is_symbol: bool = False


def _parallel_loop(
    function: Function, code: Code, expressions: ExpressionCode, prelude: Prelude, loop: For
) -> list[str]:
    captures = _captures(code, function, loop)
    base = symbol(function.name)
    count = expressions.index.text(iterations(loop))
    arguments = [c.operand.text for c in captures]
    worth = f" && {expressions.condition((loop.when,)).text}" if loop.when else ""
    with code.block(f"if (pool{worth})"):
        context = code.fresh("context")
        values = ", ".join(arguments) or "0"
        code.line(f"struct {base}_context {context} = {{{values}}};")
        call = f"{prelude.parallel_for()}(pool, {base}_body, &{context}, {count}, 1)"
        code.line(f"{call};")
    code.lines[-1] += " else {"
    with code.nested():
        code.line(f"{base}_range({', '.join([*arguments, '0', count])});")
    code.line("}")
    return [
        _range_function(function, code, prelude, loop, captures),
        _context_struct(base, captures),
        _body_function(base, captures),
    ]


def _captures(code: Code, function: Function, loop: For) -> list[_Capture]:
    scope = code.scope
    mutable = {p.buffer.name: p for p in function.parameters}
    found: list[_Capture] = []
    used = dict.fromkeys((*sorted(symbols(loop.start)), *names_used(loop.body)))
    for name in used:
        if name in scope.buffers:
            operand, buffer = scope.buffers[name]
            parameter = mutable.get(name) or _local(buffer)
            found.append(_Capture(name, parameter, "", Operand(operand)))
        if name in scope.symbols:
            found.append(_Capture(name, None, "int64_t", Operand(scope.symbols[name]), True))
        if name in scope.values:
            named = scope.values[name]
            if named.is_register:
                raise ValueError(f"register '{name}' cannot be used inside a parallel loop")
            found.append(_Capture(name, None, named.type, named.operand))
    return found


def _local(buffer: Buffer) -> Parameter:
    return Parameter(buffer, mutable=True)


def _range_function(
    function: Function, outer: Code, prelude: Prelude, loop: For, captures: Sequence[_Capture]
) -> str:
    """Runs iterations ``begin … end-1`` of the loop."""
    code = Code()
    parameters = [_bind_capture(code, outer, capture) for capture in captures]
    begin, end = code.fresh("begin"), code.fresh("end")
    code.scope.symbols[".begin"], code.scope.symbols[".end"] = begin, end

    def nested(code: Code, expressions: ExpressionCode, loop: For) -> None:
        raise ValueError(
            f"{function.name}: parallel loop over '{loop.variable}' inside a parallel loop"
        )

    first = loop.start + Sym(".begin") * loop.step
    bound = loop.start + Sym(".end") * loop.step
    StatementCode(code, prelude, nested).loop(loop, first, bound)
    parameters += [f"int64_t {begin}", f"int64_t {end}"]
    # Inlined into both callers, the kernel would be compiled twice.
    head = (
        f"static __attribute__((noinline)) void {symbol(function.name)}_range"
        f"({', '.join(parameters)})"
    )
    return _definition(head, code)


def _bind_capture(code: Code, outer: Code, capture: _Capture) -> str:
    name = code.fresh(capture.name)
    if capture.parameter is not None:
        code.scope.buffers[capture.name] = (name, capture.parameter.buffer)
        return _pointer(name, capture.parameter)
    if capture.is_symbol:
        code.scope.symbols[capture.name] = name
        known = outer.scope.bounds.get(capture.name)
        if known is not None:
            code.scope.bounds[capture.name] = known
    else:
        operand = Operand(name, True, capture.operand.mask)
        code.scope.values[capture.name] = Named(operand, capture.type)
    return f"{capture.type} {name}"


def _context_struct(base: str, captures: Sequence[_Capture]) -> str:
    fields: list[str] = []
    for number, capture in enumerate(captures):
        kind = capture.type
        if capture.parameter is not None:
            access = "" if capture.parameter.mutable else "const "
            kind = f"{access}{memory_type(capture.parameter.buffer.dtype)} *"
        space = "" if kind.endswith("*") else " "
        fields.append(f"    {kind}{space}{identifier(capture.name)}_{number};")
    lines = fields or ["    int nothing;"]
    return "\n".join([f"struct {base}_context {{", *lines, "};"])


def _body_function(base: str, captures: Sequence[_Capture]) -> str:
    """What the pool calls: unpacks the context."""
    code = Code()
    code.line(f"const struct {base}_context *c = context;")
    code.line("(void)c, (void)thread;")
    fields = [f"c->{identifier(c.name)}_{number}" for number, c in enumerate(captures)]
    code.line(f"{base}_range({', '.join([*fields, 'begin', 'end'])});")
    head = f"static void {base}_body(void *context, int64_t begin, int64_t end, int32_t thread)"
    return _definition(head, code)
