"""The model as an Arduino library: a folder by the Arduino library specification."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.program import libraries
from modelcc.targets.c.code import folded
from modelcc.targets.c.delivery.facts import Tensor
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.c.names import comment
from modelcc.targets.mcu.delivery.header import header, macro_of
from modelcc.targets.mcu.delivery.memory import declarations
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.delivery.source import source

_VERSION = "1.0.0"
"""Version of the library; the specification requires three numbers."""


def arduino_files(model: EmbeddedModel) -> tuple[File, ...]:
    """The files, each with its path in the folder."""
    name, sketch = model.name, f"{model.name}_example"
    texts = {
        "library.properties": _properties(model),
        "keywords.txt": _keywords(model),
        f"src/{name}.h": header(model),
        f"src/{name}.c": source(model),
        f"examples/{sketch}/{sketch}.ino": _sketch(model),
    }
    return tuple(File(path, text.encode()) for path, text in texts.items())


def _properties(model: EmbeddedModel) -> str:
    request = model.facts.request
    origin = comment(request.origin) or model.name
    called = libraries(model.program)
    wants = f"  Wants {', '.join(called)} as a library beside it." if called else ""
    facts = {
        "name": model.name,
        "version": _VERSION,
        "author": "modelcc",
        "maintainer": "modelcc",
        "sentence": f"The model {origin}, compiled.",
        "paragraph": f"For {model.machine.words}; {model.arena} bytes of memory.{wants}",
        "category": "Data Processing",
        "url": "",
        "architectures": "*",
        "includes": f"{model.name}.h",
    }
    return "".join(f"{key}={value}\n" for key, value in facts.items())


def _keywords(model: EmbeddedModel) -> str:
    functions = [f"{model.name}_run", *([f"{model.name}_reset"] if model.states else [])]
    macros = [f"{model.macro}_ARENA_BYTES", f"{model.macro}_ARENA_ALIGNMENT"]
    for tensor in model.facts.tensors:
        stem = macro_of(model, tensor)
        macros += [f"{stem}_ELEMENTS", f"{stem}_BYTES"]
        macros += [f"{stem}_ARENA_OFFSET"] if tensor.field in model.room else []
    rows = [f"{one}\tKEYWORD2" for one in functions] + [f"{one}\tLITERAL1" for one in macros]
    return "\n".join([*rows, ""])


def _sketch(model: EmbeddedModel) -> str:
    """Runs the model on zeros once a second, and prints outputs and time."""
    reset = ", ".join(state.field for state in model.states)
    lines = [
        f"// Runs {model.name} on zeros once a second; prints the outputs, and how long it takes.",
        f"#include <{model.name}.h>",
        "",
        *declarations(model),
        "",
        "void setup() {",
        "  Serial.begin(115200);",
        *([f"  {model.name}_reset({reset});"] if model.states else []),
        "}",
        "",
        "void loop() {",
        *_turn(model),
        "}",
        "",
    ]
    return "\n".join(lines)


def _turn(model: EmbeddedModel) -> Iterator[str]:
    facts = model.facts
    for tensor in facts.tensors:
        if tensor.field in model.room:
            yield from folded(_placed(model, tensor), "  ")
    for tensor in facts.inputs:
        yield f"  for (int32_t i = 0; i < {macro_of(model, tensor)}_ELEMENTS; i++)"
        yield f"    {tensor.field}[i] = 0;"
    given = ", ".join(["arena", *(tensor.field for tensor in facts.tensors)])
    yield "  const unsigned long start = micros();"
    yield from folded(f"const int32_t status = {model.name}_run({given});", "  ")
    yield "  const unsigned long taken = micros() - start;"
    yield '  Serial.print(status == 0 ? "us: " : "fails; us: ");'
    yield "  Serial.println(taken);"
    for tensor in facts.outputs:
        yield f'  Serial.println("{tensor.field}:");'
        yield f"  for (int32_t i = 0; i < {macro_of(model, tensor)}_ELEMENTS; i++)"
        yield f"    Serial.println({_number(tensor)});"
    yield "  delay(1000);"


def _placed(model: EmbeddedModel, tensor: Tensor) -> str:
    place = f"reinterpret_cast<uint8_t *>(arena) + {macro_of(model, tensor)}_ARENA_OFFSET"
    return f"{tensor.element} *{tensor.field} = reinterpret_cast<{tensor.element} *>({place});"


def _number(tensor: Tensor) -> str:
    """A printable expression of an element: 64-bit integers are not printable."""
    text = f"{tensor.field}[i]"
    return f"static_cast<long>({text})" if tensor.element.endswith("64_t") else text
