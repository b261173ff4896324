"""``NAME.c``: the kernels, the steps, and the functions of the header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap

from modelcc.ir.program import libraries
from modelcc.targets.c.checked import CheckedText
from modelcc.targets.c.code import WIDTH, folded
from modelcc.targets.c.delivery.facts import DeliveredModel, Tensor
from modelcc.targets.c.delivery.filling import commented, filled, indented, inner_lines
from modelcc.targets.c.delivery.header import (
    LANGUAGE,
    elements_signature,
    flags,
    processor_text,
    signature,
    statuses,
)
from modelcc.targets.c.delivery.states import states_reset
from modelcc.targets.c.emitter import EmitOptions, definitions
from modelcc.targets.c.names import string_body
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.program import HOST
from modelcc.targets.c.steps import StepsCode
from modelcc.targets.steps import write_steps

STEPS = "mcc_run_steps"
_ROW = 80
"""Characters of a string literal per line."""
_KERNELS = EmitOptions(static=True)


def source(facts: DeliveredModel) -> str:
    """Text of the file."""
    program = facts.program
    prelude = Prelude(parallel_for=_parallel_for(facts))
    kernels = definitions(program.callees, prelude, _KERNELS)
    steps = StepsCode(program, prelude)
    write_steps(program, steps)
    sizes = [_elements(facts, tensor, prelude) for tensor in facts.sized]
    sizes = [_bounds(facts), *sizes, _arena(facts, prelude)] if facts.dims else []
    functions = [*sizes, _status_text(facts), *states_reset(facts), _run(facts, prelude)]
    host = [HOST, filled("ask.c", name=facts.name).rstrip()] if facts.memories else []
    return filled(
        "model.c",
        name=facts.name,
        head=commented(_head(facts)),
        target_check=_target_check(facts),
        prelude=prelude.text(),
        kernels="\n\n".join([*_serial(facts), *kernels, *host, steps.text(STEPS, static=True)]),
        functions="\n\n".join(functions),
    )


def _head(facts: DeliveredModel) -> list[str]:
    return [
        f"{facts.name}.c: the code of {facts.name}.h, written by modelcc.",
        "",
        f"Processor: {processor_text(facts)}",
        f"Language: {LANGUAGE}.",
        f"Compile with: {' '.join(flags(facts))}",
        *(f"Link with: -l{name}" for name in libraries(facts.program)),
        "",
        "Comments before functions and steps name the nodes of the model that they compute.",
    ]


def _parallel_for(facts: DeliveredModel) -> str:
    """The function that runs parallel loops: the pool's, or a plain call without a pool."""
    return f"{facts.name}_parallel_for" if facts.has_pool else "mcc_serial_for"


def _serial(facts: DeliveredModel) -> Iterator[str]:
    if facts.is_parallel and not facts.has_pool:
        yield filled("serial.c").rstrip()


def _target_check(facts: DeliveredModel) -> str:
    """Rejects compilers that lack the processor's instructions, and a foreign byte order."""
    lines = [
        "#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__",
        f'#error "{facts.name}.c is for little-endian processors"',
        "#endif",
    ]
    macros = facts.processor.macros
    if macros:
        missing = " || ".join(f"!defined({name})" for name in macros)
        condition = f"#if !defined({facts.macro}_ANY_PROCESSOR) && ({missing})"
        flag = " ".join(f for f in facts.processor.flags if f.startswith("-march"))
        words = f"{facts.name}.c is for {facts.processor.name}: compile it with {flag}"
        lines += [
            f"/* {facts.macro}_ANY_PROCESSOR lets it be compiled for others, where it is slow. */",
            *_folded_condition(condition),
            f'#error "{words}"',
            "#endif",
        ]
    return "\n".join(lines) + "\n"


def _folded_condition(condition: str) -> list[str]:
    if len(condition) <= WIDTH:
        return [condition]
    first, rest = condition.split(" && ", 1)
    return [f"{first} && \\", f"    {rest}"]


def _bounds(facts: DeliveredModel) -> str:
    """Whether the dimensions are within their ranges."""
    tests = [text for dim in facts.dims for text in _bound(dim.field, dim.low, dim.high)]
    lines = [f"static bool dims_in_range(const {facts.name}_dims *dims)", "{"]
    first, *rest = tests or ["dims != NULL"]
    lines += [f"    return {first}", *(f"        && {test}" for test in rest)]
    lines[-1] += ";"
    return "\n".join([*lines, "}"])


def _bound(field: str, low: int, high: int | None) -> Iterator[str]:
    yield f"dims->{field} >= {low}"
    if high is not None:
        yield f"dims->{field} <= {high}"


def _names(facts: DeliveredModel) -> dict[str, str]:
    """C expressions of the dimensions in functions with access to the caller's."""
    return {dim.name: f"dims->{dim.field}" for dim in facts.dims}


def _checked(prelude: Prelude, names: Mapping[str, str]) -> CheckedText:
    return CheckedText(prelude, lambda e: names[e.name])


def _elements(facts: DeliveredModel, tensor: Tensor, prelude: Prelude) -> str:
    checked, shape = _checked(prelude, _names(facts)), tensor.type.shape
    lines = ["bool bad = false;", "if (dims == NULL || !dims_in_range(dims)) return -1;"]
    product = "1"
    for axis, extent in enumerate(shape):
        lines += inner_lines(f"const int64_t n{axis} = {checked.of(extent)};")
        product = checked.step("mul", product, f"n{axis}") if axis else f"n{axis}"
    lines += ["if (extents != NULL) {"]
    lines += [f"    extents[{axis}] = n{axis};" for axis in range(len(shape))]
    size = tensor.type.dtype.bytes
    bytes_ = checked.step("mul", product, str(size))
    lines += ["}", *inner_lines(f"const int64_t bytes = {bytes_};")]
    lines += [f"return bad ? -1 : bytes / {size};"]
    head = folded(elements_signature(facts, tensor), "")
    return "\n".join([*head, "{", indented(lines), "}"])


def _arena(facts: DeliveredModel, prelude: Prelude) -> str:
    names = _names(facts)
    checked = _checked(prelude, names)
    lines = ["bool bad = false;", "if (dims == NULL || !dims_in_range(dims)) return -1;"]
    for number, definition in enumerate(facts.program.placed.definitions):
        spelled = f"d{number}"
        lines += inner_lines(f"const int64_t {spelled} = {checked.of(definition.value)};")
        names[definition.symbol] = spelled
    lines += inner_lines(f"const int64_t bytes = {checked.of(facts.arena)};")
    lines += ["return bad ? -1 : bytes;"]
    head = f"int64_t {facts.name}_arena_bytes(const {facts.name}_dims *dims)"
    return "\n".join([head, "{", indented(lines), "}"])


def _status_text(facts: DeliveredModel) -> str:
    lines = ["switch (status) {"]
    for status in statuses(facts):
        words = wrap(status.text, _ROW, drop_whitespace=False, break_long_words=False)
        rows = [f'"{string_body(row)}"' for row in words]
        lines.append(f"case {facts.macro}_{status.name}:")
        lines += [f"    return {rows[0]}", *(f"        {row}" for row in rows[1:])]
        lines[-1] += ";"
    lines += ["}", 'return "a status that there is not";']
    head = f"const char *{facts.name}_status_text({facts.name}_status status)"
    return "\n".join([head, "{", indented(lines), "}"])


def _run(facts: DeliveredModel, prelude: Prelude) -> str:
    lines = [*_refusals(facts), *_tables(facts), *_call(facts, prelude)]
    return "\n".join([signature(facts), "{", indented(lines), "}"])


def _refusals(facts: DeliveredModel) -> Iterator[str]:
    """Invalid arguments end the call before any side effect."""
    macro = facts.macro
    yield from _not_null(facts, ["inputs", "outputs", *(["dims"] if facts.dims else [])])
    given = [f"inputs->{t.field}" for t in facts.inputs]
    given += [f"outputs->{t.field}" for t in facts.outputs if t.memory is None]
    given += ["weights"] if facts.weights else []
    states = [f"states->{state.tensor.field}" for state in facts.states]
    given += ["states", *states] if states else []
    given += ["allocator", "allocator->allocate"] if facts.memories else []
    yield from _not_null(facts, given)
    if facts.dims:
        yield f"if (!dims_in_range(dims)) return {macro}_BAD_SIZE;"
    for tensor in facts.sized:
        function = f"{facts.name}_{tensor.side}_{tensor.field}_elements"
        yield f"if ({function}(dims, NULL) < 0) return {macro}_BAD_SIZE;"
    if facts.dims:
        yield f"const int64_t needed = {facts.name}_arena_bytes(dims);"
        yield f"if (needed < 0) return {macro}_BAD_SIZE;"
    else:
        yield f"const int64_t needed = {macro}_ARENA_BYTES;"
    yield f"if (arena_bytes < needed) return {macro}_SMALL_ARENA;"
    yield f"if (arena == NULL && needed > 0) return {macro}_NULL_POINTER;"
    yield f"if ((uintptr_t)arena % {macro}_ALIGNMENT) return {macro}_MISALIGNED;"
    if facts.weights:
        yield f"if ((uintptr_t)weights % {macro}_ALIGNMENT) return {macro}_MISALIGNED;"


def _not_null(facts: DeliveredModel, pointers: list[str]) -> Iterator[str]:
    for pointer in pointers:
        yield f"if ({pointer} == NULL) return {facts.macro}_NULL_POINTER;"


def _tables(facts: DeliveredModel) -> Iterator[str]:
    """Arrays of addresses and sizes that the steps expect."""
    kept = {state.input: f"states->{state.tensor.field}" for state in facts.states}
    given = iter(f"(void *)inputs->{t.field}" for t in facts.inputs)
    inputs = [kept[name] if name in kept else next(given) for name in facts.program.inputs]
    made = iter("NULL" if t.memory is not None else f"outputs->{t.field}" for t in facts.outputs)
    outputs = ["NULL" if n in facts.program.states else next(made) for n in facts.program.outputs]
    yield from _table("void *const", "mcc_inputs", inputs)
    yield from _table("void *const", "mcc_outputs", outputs)
    if facts.weights and facts.program.constants:
        yield "uint8_t *const mcc_weights = (uint8_t *)weights;"
        table = facts.weights.table[: len(facts.program.constants)]
        addresses = [f"mcc_weights + {spec.offset}" for spec in table]
    else:  # empty constants need an address, too, though not a distinct one
        addresses = ["NULL"] * len(facts.program.constants)
    yield from _table("void *const", "mcc_constants", addresses)
    dynamic = facts.program.read_sizes
    values = [f"dims->{d.field}" for d in facts.dims]
    if facts.program.dims:
        kind = "int64_t" if dynamic else "const int64_t"
        yield from _table(kind, "mcc_sizes", [*values, *("0" for _ in dynamic)])


def _table(kind: str, name: str, values: list[str]) -> Iterator[str]:
    if values:
        yield from inner_lines(f"{kind} {name}[] = {{{', '.join(values)}}};")


def _call(facts: DeliveredModel, prelude: Prelude) -> Iterator[str]:
    program = facts.program
    tables = [
        "mcc_inputs" if program.inputs else "NULL",
        "mcc_outputs" if program.outputs else "NULL",
        "mcc_constants" if program.constants else "NULL",
        "arena",
        "mcc_sizes" if program.dims else "NULL",
        "pool" if facts.has_pool else "NULL",
    ]
    if facts.memories:
        yield f"void *mcc_given[{len(facts.memories)}] = {{NULL}};"
        yield "mcc_asked mcc_context = {allocator, mcc_given};"
        yield "const mcc_host mcc_memory = {mcc_ask, &mcc_context};"
        tables.append("&mcc_memory")
    call = f"{STEPS}({', '.join(tables)})"
    if not facts.memories:
        yield from inner_lines(f"return ({facts.name}_status){call};")
        return
    yield from inner_lines(f"const int32_t status = {call};")
    yield f"if (status != 0) return ({facts.name}_status)status;"
    yield from _dynamic_results(facts, prelude)
    yield f"return {facts.macro}_OK;"


def _dynamic_results(facts: DeliveredModel, prelude: Prelude) -> Iterator[str]:
    """Addresses and extents of outputs whose sizes are known only after the run."""
    names = {name: f"mcc_sizes[{n}]" for n, name in enumerate(facts.program.dims)}
    checked = _checked(prelude, names)
    dynamic = [tensor for tensor in facts.outputs if tensor.memory is not None]
    extents = [f"outputs->{t.field}_dims[{axis}] = {checked.of(extent)};"
               for t in dynamic for axis, extent in enumerate(t.type.shape)]  # fmt: skip
    if any("&bad" in line for line in extents):
        yield "bool bad = false;"
    for tensor in dynamic:
        yield f"outputs->{tensor.field} = mcc_given[{tensor.memory}];"
    for line in extents:
        yield from inner_lines(line)
