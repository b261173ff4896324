"""``NAME.h``: the interface for callers in C or C++."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelcc.targets.c.code import WIDTH, folded
from modelcc.targets.c.delivery.facts import DeliveredModel, Dimension, Tensor
from modelcc.targets.c.delivery.filling import commented, filled, indented
from modelcc.targets.c.delivery.states import states_declared
from modelcc.targets.c.names import comment

LANGUAGE = "GNU C11 (-std=gnu11): GCC 12, Clang 14 or newer"


@dataclass(frozen=True)
class Status:
    """An enumerator: its name without the prefix, its value, and its meaning."""

    name: str
    value: int
    text: str


def statuses(facts: DeliveredModel) -> tuple[Status, ...]:
    """Return values of the functions; those above 0 are the model's own constraints on its
    inputs."""
    loads = facts.weights is not None and facts.request.weights == "bin"
    fixed = (
        ("OK", 0, "no error"),
        ("OUT_OF_MEMORY", -1, "memory that was asked for is not to be had"),
        ("NULL_POINTER", -2, "a pointer is NULL that must not be"),
        ("BAD_SIZE", -3, "a dimension is out of its range, or sizes do not fit 64 bits"),
        ("SMALL_ARENA", -4, "the arena has fewer bytes than the call needs"),
        ("MISALIGNED", -5, "the arena or the weights are not aligned to 64 bytes"),
        *((("NO_WEIGHTS", -6, "the file of weights cannot be read"),) if loads else ()),
        *(
            (("WRONG_WEIGHTS", -7, "these weights are damaged, or another model's"),)
            if loads
            else ()
        ),
    )
    asked = (
        (f"CHECK_{n}", n, f"the inputs do not meet what is asked of them, {text}")
        for n, text in enumerate(facts.checks, 1)
    )
    return tuple(Status(*entry) for entry in (*fixed, *asked))


def header(facts: DeliveredModel) -> str:
    """Text of the file."""
    name, macro = facts.name, facts.macro
    sizes = [line for tensor in facts.tensors for line in _sizes(facts, tensor)]
    return filled(
        "model.h",
        name=name,
        NAME=macro,
        head=commented(_head(facts)),
        includes=f'\n#include "{name}_pool.h"' if facts.has_pool else "",
        statuses="\n".join(_status(facts, status) for status in statuses(facts)),
        dims=_dims(facts),
        inputs=indented(_fields(facts.inputs)),
        outputs=indented(_fields(facts.outputs)),
        sizes="\n".join(sizes),
        states=_states(facts),
        arena="\n".join(_arena(facts)),
        weights=_weights(facts),
        allocator=_allocator(facts),
        about_run=commented(_about_run(facts)),
        run=signature(facts, ";"),
    )


def signature(facts: DeliveredModel, end: str = "") -> str:
    """Head of the function that runs the model, followed by ``end``."""
    name = facts.name
    parameters = [f"const {name}_inputs *inputs", f"{name}_outputs *outputs"]
    parameters += [f"const {name}_dims *dims"] if facts.dims else []
    parameters += ["const void *weights"] if facts.weights else []
    parameters += [f"const {name}_states *states"] if facts.states else []
    parameters += ["void *arena", "int64_t arena_bytes"]
    parameters += [f"struct {name}_pool *pool"] if facts.has_pool else []
    parameters += [f"const {name}_allocator *allocator"] if facts.memories else []
    return "\n".join(folded(f"{name}_status {name}_run({', '.join(parameters)}){end}", ""))


def arguments(facts: DeliveredModel) -> str:
    """Arguments of a call to that function, as the examples name them."""
    found = ["&inputs", "&outputs", *(["&dims"] if facts.dims else [])]
    found += [*(["weights"] if facts.weights else []), *(["&states"] if facts.states else [])]
    found += ["arena", "arena_bytes"]
    found += ["pool"] if facts.has_pool else []
    return ", ".join([*found, *(["&allocator"] if facts.memories else [])])


def _head(facts: DeliveredModel) -> Iterator[str]:
    request, program = facts.request, facts.program
    origin = f"{request.origin} ({program.name})" if request.origin else program.name
    yield f"{facts.name}.h: {origin} in C, written by modelcc {request.version}".rstrip()
    yield ""
    for tensor in facts.inputs:
        yield f"    in   {tensor.name}: {tensor.type}"
    for tensor in facts.outputs:
        yield f"    out  {tensor.name}: {tensor.type}"
    for state in facts.states:
        yield f"    kept {state.tensor.name}: {state.tensor.type}"
    if request.interface is not None and not request.interface.has_tensors_alone:
        yield ""
        yield "Sequences and optional values are tensors here, in this order:"
        for side in (request.interface.inputs, request.interface.outputs):
            yield from (f"    {n}: {s}" for n, s in side.items() if not isinstance(s, str))
    yield ""
    yield f"Processor: {processor_text(facts)}"
    yield f"Language of the .c files: {LANGUAGE}."
    yield f"The header is C99 and C++11. Compile with: {' '.join(flags(facts))}"
    yield ""
    yield "Memory belongs to the caller: a call works on the buffers it is given, keeps none of"
    yield "them and allocates nothing; its outputs and its arena must not overlap anything else."
    if facts.memories:
        yield "It asks the caller's allocator for what depends on data."
    own = "an arena, states and outputs" if facts.states else "an arena and outputs"
    yield f"Threads: calls may run at the same time, each with {own} of its own;"
    shared = [
        *(["the weights"] if facts.weights else []),
        *(["the pool"] if facts.has_pool else []),
    ]
    yield f"{' and '.join(shared)} may be shared." if shared else "they share nothing."


def processor_text(facts: DeliveredModel) -> str:
    """The processor that the code is for, and the optimisation level."""
    plan = "plain loops over single elements" if facts.level == 0 else "vector loops"
    return f"{facts.processor.name}; {plan} (-O{facts.level}), laid out for {_threads(facts)}."


def flags(facts: DeliveredModel) -> tuple[str, ...]:
    """Options for a C compiler."""
    return (f"-O{facts.level}", *facts.processor.flags)


def _threads(facts: DeliveredModel) -> str:
    return "one thread" if facts.threads == 1 else f"{facts.threads} threads"


def _status(facts: DeliveredModel, status: Status) -> str:
    entry = f"    {facts.macro}_{status.name} = {status.value}, /* {comment(status.text)} */"
    if len(entry) <= WIDTH:
        return entry
    note = "\n".join(folded(f"/* {comment(status.text)} */", "    "))
    return f"{note}\n    {facts.macro}_{status.name} = {status.value},"


def _dims(facts: DeliveredModel) -> str:
    if not facts.dims:
        return ""
    fields = [f"int64_t {dim.field}; /* {comment(dim_text(dim))} */" for dim in facts.dims]
    head = "/* The sizes of the named dimensions. */"
    struct = f"typedef struct {facts.name}_dims {{\n{indented(fields)}\n}} {facts.name}_dims;"
    return f"{head}\n{struct}\n"


def dim_text(dim: Dimension) -> str:
    """A dimension's name and range."""
    high = "" if dim.high is None else f" and at most {dim.high}"
    return f"{dim.name}, at least {dim.low}{high}"


def _fields(tensors: Sequence[Tensor]) -> list[str]:
    lines = [line for tensor in tensors for line in _field(tensor)]
    return lines or ["char nothing; /* the model has none; C has no empty structures */"]


def _field(tensor: Tensor) -> Iterator[str]:
    access = "const " if tensor.side == "input" else ""
    note = f"{tensor.name}: {tensor.type}"
    if tensor.memory is not None:
        note += ", from your allocator; its size depends on data"
    line = f"{access}{tensor.element} *{tensor.field};"
    noted = f"{line} /* {comment(note)} */"
    yield from [noted] if len(noted) + 4 <= WIDTH else [*folded(f"/* {comment(note)} */", ""), line]
    if tensor.memory is not None and tensor.type.rank:
        yield f"int64_t {tensor.field}_dims[{tensor.type.rank}]; /* its extents, set by a run */"


def _states(facts: DeliveredModel) -> str:
    fields = [line for state in facts.states for line in _field(state.tensor)]
    return states_declared(facts, fields)


def tensor_macro(facts: DeliveredModel, tensor: Tensor) -> str:
    """Prefix of the macros of a tensor."""
    return f"{facts.macro}_{tensor.side.upper()}_{tensor.field}"


def _sizes(facts: DeliveredModel, tensor: Tensor) -> Iterator[str]:
    macro = tensor_macro(facts, tensor)
    size = tensor.type.dtype.bytes
    yield f"#define {macro}_RANK {tensor.type.rank}"
    if tensor.memory is not None:
        return
    if tensor.is_static:
        elements = tensor.type.elements
        if tensor.type.rank:
            yield f"#define {macro}_DIMS {{{', '.join(map(str, tensor.type.shape))}}}"
        yield f"#define {macro}_ELEMENTS INT64_C({elements})"
        yield f"#define {macro}_BYTES INT64_C({elements * size})"
        return
    function = elements_function(facts, tensor)
    yield f"#define {macro}_ELEMENTS(dims) {function}(dims, NULL)"
    yield f"#define {macro}_BYTES(dims) ({function}(dims, NULL) * {size})"
    yield "/* Number of elements, -1 for bad sizes; the extents, too, unless `extents` is NULL. */"
    yield from folded(f"{elements_signature(facts, tensor)};", "")


def elements_function(facts: DeliveredModel, tensor: Tensor) -> str:
    """The function that returns the size of a tensor."""
    return f"{facts.name}_{tensor.side}_{tensor.field}_elements"


def elements_signature(facts: DeliveredModel, tensor: Tensor) -> str:
    """Its head."""
    function = elements_function(facts, tensor)
    return f"int64_t {function}(const {facts.name}_dims *dims, int64_t *extents)"


def _arena(facts: DeliveredModel) -> Iterator[str]:
    macro, name = facts.macro, facts.name
    fixed = facts.static_arena
    if facts.dims:
        yield "/* Bytes that a call with these sizes needs; -1 for bad sizes. */"
        yield f"int64_t {name}_arena_bytes(const {name}_dims *dims);"
    if fixed is None:
        return
    yield f"#define {macro}_ARENA_BYTES INT64_C({fixed})"
    yield "/* An arena as a variable: a line DEFINE_ARENA(scratch); outside of functions. */"
    yield f"#define {macro}_DEFINE_ARENA(name) \\"
    yield f"    static unsigned char name[{max(fixed, 1)}] __attribute__((aligned(64)))"


def _weights(facts: DeliveredModel) -> str:
    if facts.weights is None:
        return ""
    is_file = facts.request.weights == "bin"
    return filled(
        "weights_file.h" if is_file else "weights_data.h",
        name=facts.name,
        NAME=facts.macro,
        size=str(facts.weights.size),
        sha256=facts.weights.sha256,
    )


def memory_names(facts: DeliveredModel) -> tuple[str, ...]:
    """Enumerators of memory requested from the caller."""
    return tuple(f"{facts.macro}_MEMORY_{field}" for field in facts.memories)


def _allocator(facts: DeliveredModel) -> str:
    if not facts.memories:
        return ""
    wanted = [f"{name}," for name in memory_names(facts)]
    return filled("allocator.h", name=facts.name, wanted=indented(wanted))


def _about_run(facts: DeliveredModel) -> Iterator[str]:
    macro, name = facts.macro, facts.name
    if facts.dims:
        yield "dims: the sizes of this call; they say how large the buffers are."
    if facts.weights is not None:
        yield f"weights: {macro}_WEIGHTS_BYTES bytes, aligned to {macro}_ALIGNMENT."
    if facts.states:
        yield f"states: memory that {name}_states_reset has set, as calls before have left it."
    size = f"{macro}_ARENA_BYTES" if facts.static_arena is not None else f"{name}_arena_bytes(dims)"
    yield f"arena: arena_bytes bytes, aligned to {macro}_ALIGNMENT; NULL where none are needed."
    yield f"arena_bytes: at least {size}."
    if facts.has_pool:
        yield "pool: threads to run on, or NULL for the calling thread alone."
    if facts.memories:
        yield "allocator: is asked for memory whose size depends on data."
    yield ""
    left = ", and the states as they were" if facts.states else ""
    yield f"Returns {macro}_OK, or what is wrong; the outputs are undefined then{left}."
