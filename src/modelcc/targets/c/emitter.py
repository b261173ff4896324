"""C file of loop-level functions.

``func @relu(%x: f32[n], %y: mut f32[n]; n)`` with a parallel loop becomes three functions::

    void relu(const float *restrict x, float *restrict y, int64_t n, void *pool)
    static void relu_range_body(void *context, int64_t begin, int64_t end, int32_t thread)
    static void relu_range(const float *restrict x, float *restrict y, int64_t n, int64_t begin,
                           int64_t end)

The last runs iterations ``begin … end-1``.  The pool calls the second; without a pool (NULL), or if
the loop's ``when`` does not hold, the first calls the last for all iterations.  A function without
a parallel loop has no pool parameter.  One with checks takes ``int64_t *faults`` before the pool:
two words per number of a check; a check that fails sets the first to 1 and the second to the index,
and returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.library import Callee, LibraryFunction, meaning_of
from modelcc.ir.loop import Function, ParallelCall
from modelcc.ir.loop_traversal import checks_in, grid_loop, launch_extents
from modelcc.ir.shared_layout import shared_layout
from modelcc.passes.loop.outline_parallel import outline_parallel
from modelcc.passes.loop.remove_unused import remove_unused
from modelcc.targets.c.code import Code, folded
from modelcc.targets.c.dialect import GNU, CDialect, GroupDialect
from modelcc.targets.c.library_call import LibraryCallCode, library_prototype
from modelcc.targets.c.names import comment, symbol
from modelcc.targets.c.parallel import bind_value, context_fields, outlined_symbol
from modelcc.targets.c.parameters import bind_parameters, note_unused
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.statements import StatementCode
from modelcc.targets.parallel import with_range


@dataclass(frozen=True)
class EmitOptions:
    """``static`` kernels have internal linkage.  ``head`` is a first comment."""

    static: bool = False
    head: str = ""
    dialect: CDialect = GNU


PLAIN = EmitOptions()


def emit_c(functions: Sequence[Callee], options: EmitOptions = PLAIN) -> str:
    """C text of a file that defines ``functions``.

    Raises ``NotImplementedError`` for elementary functions that ``expand_math`` has not expanded
    and for vectors whose number of lanes is no power of two, ``TypeError`` for element types
    without arithmetic in C.
    """
    prelude = Prelude(options.dialect)
    return file_text(definitions(functions, prelude, options), prelude, options)


def definitions(functions: Sequence[Callee], prelude: Prelude, options: EmitOptions) -> list[str]:
    """The functions' definitions, which use ``prelude``, after declarations of their callees."""
    foreign = (library_prototype(f) for f in functions if isinstance(f, LibraryFunction))
    own = (text for f in functions for text in _definitions(f, prelude, options))
    return [*dict.fromkeys(foreign), *own]


def file_text(parts: Sequence[str], prelude: Prelude, options: EmitOptions) -> str:
    """A whole file."""
    notes = "".join(f"\n * {comment(line)}".rstrip() for line in options.head.splitlines())
    head = [f"/*{notes}\n */"] if options.head else []
    return "\n\n".join([*head, prelude.text(), *parts]) + "\n"


def prototype(callee: Callee, static: bool = False, dialect: CDialect = GNU) -> str:
    """The function's head, without a semicolon."""
    function = meaning_of(callee)
    parameters = ", ".join(bind_parameters(Code(dialect), function, dialect.groups))
    before = "static " if static else ""
    if dialect.groups is not None:
        before += _launch_head(function, dialect.name, dialect.groups, bool(dialect.note))
    return f"{before}void {symbol(function.name)}({parameters})"


def _launch_head(function: Function, dialect: str, groups: GroupDialect, notes: bool) -> str:
    """The text before the head of a kernel."""
    if grid_loop(function) is None:
        raise NotImplementedError(f"{dialect} has kernels only, but @{function.name} has no grid")
    if checks_in(function) and not notes:
        raise NotImplementedError(
            f"kernels of {dialect} cannot end a run, but @{function.name} checks an index"
        )
    _, threads = launch_extents(function)
    return groups.kernel + groups.size.format(*threads, *(1 for _ in range(3 - len(threads))))


def _definitions(function: Callee, prelude: Prelude, options: EmitOptions) -> list[str]:
    """A function, after those outlined from its parallel loop."""
    if isinstance(function, LibraryFunction):
        return [_library_definition(function, prelude, options)]
    function = outline_parallel(remove_unused(function))
    code = Code(prelude.dialect)
    head = prototype(function, options.static, prelude.dialect)
    bind_parameters(code, function, prelude.dialect.groups)
    layout = None if prelude.dialect.groups is None else shared_layout(function)
    StatementCode(code, prelude, layout).block(function.body)
    text = _definition(head, code, function.source)
    calls = [s for s in function.body if isinstance(s, ParallelCall)]
    return [*(part for call in calls for part in _outlined(call.outlined, prelude)), text]


def _library_definition(function: LibraryFunction, prelude: Prelude, options: EmitOptions) -> str:
    code = Code(prelude.dialect)
    bind_parameters(code, function.meaning)
    LibraryCallCode(code, prelude, function.call).emit()
    head = prototype(function, options.static, prelude.dialect)
    return _definition(head, code, function.meaning.source)


def _outlined(function: Function, prelude: Prelude) -> list[str]:
    """The outlined function, its arguments as a structure, and the function that the pool calls."""
    code, name = Code(prelude.dialect), outlined_symbol(function)
    values = [bind_value(code, prelude, value) for value in function.values]
    parameters = [*values, *bind_parameters(code, function)]
    StatementCode(code, prelude).block(function.body)
    # Inlined into both callers, the kernel would be compiled twice.
    head = f"{prelude.dialect.alone} void {name}({', '.join(parameters)})"
    unpacking, arguments = Code(), context_fields(function, prelude)
    unpacking.line(f"const struct {name}_context *c = context;")
    unpacking.line("(void)c, (void)thread;")
    given = with_range(function, [f"c->{field}" for field in arguments], ("begin", "end"))
    unpacking.line(f"{name}({', '.join(given)});")
    body = f"static void {name}_body(void *context, int64_t begin, int64_t end, int32_t thread)"
    fields = [f"    {declaration};" for declaration in arguments.values()] or ["    int nothing;"]
    structure = "\n".join([f"struct {name}_context {{", *fields, "};"])
    return [_definition(head, code), structure, _definition(body, unpacking)]


def _definition(head: str, code: Code, source: Sequence[str] = ()) -> str:
    note_unused(code)
    notes = folded(f"/* {comment(', '.join(source))} */", "") if source else []
    return "\n".join([*notes, *folded(head, ""), "{", *code.lines, "}"])
