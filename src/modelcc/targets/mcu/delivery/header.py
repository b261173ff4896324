"""``NAME.h``: the interface for callers."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.targets.c.code import folded
from modelcc.targets.c.delivery.facts import Tensor
from modelcc.targets.c.delivery.filling import commented
from modelcc.targets.c.delivery.header import tensor_macro
from modelcc.targets.c.names import comment
from modelcc.targets.mcu.delivery.model import EmbeddedModel


def header(model: EmbeddedModel) -> str:
    """Text of the file."""
    guard = f"{model.macro}_H"
    return "\n".join(
        [
            "/*",
            commented(
                [f"{model.name}.h: a compiled model, written by modelcc.", "", *head_lines(model)]
            ),
            " */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            *_memory(model),
            *(line for tensor in model.facts.tensors for line in _tensor(model, tensor)),
            *_functions(model),
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def head_lines(model: EmbeddedModel) -> Iterator[str]:
    """Comments on the origin and the target of the file."""
    request = model.facts.request
    if request.origin:
        yield f"Model: {request.origin}"
    if request.version:
        yield f"Compiler: modelcc {request.version}"
    yield f"Processor: {model.machine.name} ({model.machine.words})"


def parameters(model: EmbeddedModel) -> Iterator[tuple[str, str]]:
    """Names and declarations of the parameters of the function that runs the model."""
    yield "arena", "void *arena"
    for tensor in model.facts.inputs:
        yield tensor.field, f"const {tensor.element} *{tensor.field}"
    for tensor in (*model.facts.outputs, *model.states):
        yield tensor.field, f"{tensor.element} *{tensor.field}"


def signature(model: EmbeddedModel) -> str:
    """Head of the function that runs the model."""
    return f"int32_t {model.name}_run({', '.join(text for _, text in parameters(model))})"


def reset_signature(model: EmbeddedModel) -> str:
    """Head of the function that resets states to their initial values."""
    given = ", ".join(f"{state.element} *{state.field}" for state in model.states)
    return f"void {model.name}_reset({given})"


def macro_of(model: EmbeddedModel, tensor: Tensor) -> str:
    """Prefix of the macros of a tensor."""
    return tensor_macro(model.facts, tensor)


def _memory(model: EmbeddedModel) -> Iterator[str]:
    yield "/* Scratch memory of a call: bytes, and what its address is a multiple of. */"
    yield f"#define {model.macro}_ARENA_BYTES {model.arena}"
    yield f"#define {model.macro}_ARENA_ALIGNMENT {model.program.placed.alignment}"
    yield ""


def _tensor(model: EmbeddedModel, tensor: Tensor) -> Iterator[str]:
    shape = "x".join(map(str, tensor.type.shape)) or "scalar"
    yield f"/* {tensor.side} {comment(tensor.name)}: {tensor.type.dtype}, {shape} */"
    macro = macro_of(model, tensor)
    count = tensor.type.bytes // tensor.type.dtype.bytes
    yield f"#define {macro}_ELEMENTS {count}"
    yield f"#define {macro}_BYTES {tensor.type.bytes}"
    if tensor.field in model.room:
        yield f"#define {macro}_ARENA_OFFSET {model.room[tensor.field]}"
    yield ""


def _functions(model: EmbeddedModel) -> Iterator[str]:
    lines = [
        "Runs the model once.  It keeps nothing in memory of its own, so calls with other arenas",
        "may be made at the same time.  An input or output may be anywhere, or in the arena at",
        "its ..._ARENA_OFFSET; an input in the arena is gone after the call.",
        "Returns 0, or the number of what does not hold of the inputs:",
        *(f"{number}: {text}" for number, text in enumerate(model.facts.checks, 1)),
    ]
    if not model.facts.checks:
        lines[-1] = "Returns 0."
    yield f"/*\n{commented(lines)}\n */"
    yield from folded(f"{signature(model)};", "")
    yield ""
    if model.states:
        yield "/* Sets what the model keeps from call to call to what it is before the first. */"
        yield from folded(f"{reset_signature(model)};", "")
        yield ""
