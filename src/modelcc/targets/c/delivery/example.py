"""``main.c``: a program that runs the model once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelcc.targets.c.delivery.facts import DeliveredModel, Tensor
from modelcc.targets.c.delivery.filling import filled, indented
from modelcc.targets.c.delivery.header import arguments, elements_function, tensor_macro
from modelcc.targets.c.delivery.states import reset_arguments
from modelcc.targets.c.names import comment, string_body

_NOTHING = "{NULL, NULL, NULL, 0, 0, {0}, NULL},"
"""C has no empty arrays."""


def example(facts: DeliveredModel) -> str:
    """Text of the file."""
    return filled(
        "main.c",
        name=facts.name,
        NAME=facts.macro,
        usage=_usage(facts),
        options="".join(f", {option}" for option, _ in _options(facts)),
        rank=str(max((1, *(tensor.type.rank for tensor in facts.tensors)))),
        input_count=str(len(facts.inputs)),
        output_count=str(len(facts.outputs)),
        inputs=indented([_entry(facts, t) for t in facts.inputs] or [_NOTHING]),
        outputs=indented([_entry(facts, t) for t in facts.outputs] or [_NOTHING]),
        dim_names=_dim_names(facts),
        allocate=_allocate(facts),
        locals=indented(list(_locals(facts))),
        option_cases=indented(list(_option_cases(facts)), 8),
        shapes=indented(list(_shapes(facts))),
        prepare=indented(list(_prepare(facts))),
        input_fields=_fields("inputs_", facts.inputs),
        output_fields=_fields("outputs_", facts.outputs),
        arguments=arguments(facts),
        again=_again(facts),
        results=indented(list(_results(facts))),
        clean_up=indented(list(_clean_up(facts))),
    )


def _options(facts: DeliveredModel) -> Iterator[tuple[str, str]]:
    """Options besides inputs and outputs, and the usage text of the example."""
    if facts.dims:
        yield "-d NAME=SIZE", f"-d {facts.dims[0].name}={max(2, facts.dims[0].low)}"
    if _reads_weights(facts):
        yield "-w FILE", f"-w {facts.name}_weights.bin"
    if facts.states:
        yield "-n CALLS", "-n 2"
    if facts.has_pool:
        yield "-t THREADS", f"-t {facts.threads}"


def _usage(facts: DeliveredModel) -> str:
    words = [shown for _, shown in _options(facts)]
    words += [f"-i {facts.inputs[0].name}=x.bin"] if facts.inputs else []
    words += [f"-o {facts.outputs[0].name}=y.bin"] if facts.outputs else []
    return comment("".join(f" {word}" for word in words))


def _reads_weights(facts: DeliveredModel) -> bool:
    return facts.weights is not None and facts.request.weights == "bin"


def quoted(text: str) -> str:
    """A C string literal."""
    return f'"{string_body(text)}"'


def _entry(facts: DeliveredModel, tensor: Tensor) -> str:
    kind, rank = tensor.type.dtype, tensor.type.rank
    dims = f"{tensor_macro(facts, tensor)}_DIMS" if tensor.is_static and rank else "{0}"
    return f'{{{quoted(tensor.name)}, "{kind}", NULL, {kind.bytes}, {rank}, {dims}, NULL}},'


def _dim_names(facts: DeliveredModel) -> str:
    if not facts.dims:
        return ""
    names = ", ".join(quoted(dim.name) for dim in facts.dims)
    places = ", ".join(f"&dims->{dim.field}" for dim in facts.dims)
    return filled("dims.c", name=facts.name, names=names, places=places)


def _allocate(facts: DeliveredModel) -> str:
    count = len(facts.memories)
    return filled("allocate.c", count=str(count)) if count else ""


def _locals(facts: DeliveredModel) -> Iterator[str]:
    name, macro = facts.name, facts.macro
    if facts.dims:
        sizes = ", ".join(str(_nominal(dim.low, dim.high)) for dim in facts.dims)
        yield f"{name}_dims dims = {{{sizes}}};"
    if _reads_weights(facts):
        yield f"#ifndef {macro}_WEIGHTS_PATH"
        yield f'#define {macro}_WEIGHTS_PATH "{name}_weights.bin"'
        yield "#endif"
        yield f"const char *weights_path = {macro}_WEIGHTS_PATH;"
    if facts.states:
        yield "int64_t calls = 1;"
    if facts.has_pool:
        yield f"int32_t threads = {facts.threads};"


def _nominal(low: int, high: int | None) -> int:
    return max(low, 2) if high is None else max(low, min(2, high))


def _option_cases(facts: DeliveredModel) -> Iterator[str]:
    for option, action in (
        ("-d", "set_dim(&dims, value);" if facts.dims else ""),
        ("-w", "weights_path = value;" if _reads_weights(facts) else ""),
        ("-n", "calls = atoll(value);" if facts.states else ""),
        ("-t", "threads = (int32_t)atoi(value);" if facts.has_pool else ""),
    ):
        if action:
            yield f'else if (strcmp(option, "{option}") == 0)'
            yield f"    {action}"


def _shapes(facts: DeliveredModel) -> Iterator[str]:
    bad = "a dimension is out of its range, or all of them are too large together"
    for side, tensors in (("inputs_", facts.inputs), ("outputs_", facts.outputs)):
        for number, tensor in enumerate(tensors):
            if tensor in facts.sized:
                function = elements_function(facts, tensor)
                yield f"if ({function}(&dims, {side}[{number}].dims) < 0)"
                yield f'    fail({quoted(tensor.name)}, "{bad}");'


def _prepare(facts: DeliveredModel) -> Iterator[str]:
    name, macro = facts.name, facts.macro
    if facts.static_arena is None:
        yield f"const int64_t arena_bytes = {name}_arena_bytes(&dims);"
    else:
        yield f"const int64_t arena_bytes = {macro}_ARENA_BYTES;"
    yield "void *arena = memory(arena_bytes);"
    if _reads_weights(facts):
        yield "const void *weights = NULL;"
        yield f"const {name}_status opened = {name}_weights_open(weights_path, &weights);"
        yield f"if (opened != {macro}_OK) fail(weights_path, {name}_status_text(opened));"
    elif facts.weights:
        yield f"const void *weights = {name}_weights();"
    if facts.states:
        for state in facts.states:
            size = f"{tensor_macro(facts, state.tensor)}_BYTES"
            yield f"{state.tensor.element} *state_{state.tensor.field} = memory({size});"
        fields = ", ".join(f"state_{state.tensor.field}" for state in facts.states)
        yield f"const {name}_states states = {{{fields}}};"
        yield f"const {name}_status set = {name}_states_reset({reset_arguments(facts)});"
        yield f'if (set != {macro}_OK) fail("states", {name}_status_text(set));'
    if facts.has_pool:
        yield f"struct {name}_pool *pool = {name}_pool_create(threads);"
        yield 'if (pool == NULL) fail("-t", "the system refuses so many threads");'
    if facts.memories:
        yield f"const {name}_allocator allocator = {{allocate, NULL}};"


def _fields(side: str, tensors: Sequence[Tensor]) -> str:
    """Initialisers of fields of a structure of tensors."""
    found: list[str] = []
    for number, tensor in enumerate(tensors):
        found.append("NULL" if tensor.memory is not None else f"{side}[{number}].data")
        if tensor.memory is not None and tensor.type.rank:
            found.append("{0}")
    return ", ".join(found) or "0"


def _again(facts: DeliveredModel) -> str:
    """Further calls, which continue from the states of the previous ones."""
    return filled("again.c", name=facts.name, arguments=arguments(facts)) if facts.states else ""


def _results(facts: DeliveredModel) -> Iterator[str]:
    """Outputs in caller-allocated memory: their addresses and extents."""
    for number, tensor in enumerate(facts.outputs):
        if tensor.memory is None:
            continue
        yield f"free(outputs_[{number}].data);"
        yield f"outputs_[{number}].data = outputs.{tensor.field};"
        yield f"given[{tensor.memory}] = NULL;"
        if tensor.type.rank:
            extents = f"outputs.{tensor.field}_dims"
            yield f"memcpy(outputs_[{number}].dims, {extents}, sizeof {extents});"


def _clean_up(facts: DeliveredModel) -> Iterator[str]:
    if facts.has_pool:
        yield f"{facts.name}_pool_destroy(pool);"
    for state in facts.states:
        yield f"free(state_{state.tensor.field});"
    if _reads_weights(facts):
        yield f"{facts.name}_weights_close(weights);"
    if facts.memories:
        yield f"for (int64_t i = 0; i < {len(facts.memories)}; i++) free(given[i]);"
