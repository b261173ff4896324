"""``NAME.c``: constants, kernels, and the function that runs them."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index import Index
from modelcc.ir.program import Place, libraries
from modelcc.targets.c.code import folded, words_of
from modelcc.targets.c.delivery.filling import commented
from modelcc.targets.c.delivery.weights import value_rows
from modelcc.targets.c.dialect import EMBEDDED
from modelcc.targets.c.emitter import EmitOptions, definitions
from modelcc.targets.c.names import comment
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.steps import StepsCode
from modelcc.targets.c.values import memory_type
from modelcc.targets.mcu.delivery.header import head_lines, parameters, reset_signature, signature
from modelcc.targets.mcu.delivery.model import ConstantArray, EmbeddedModel
from modelcc.targets.steps import write_steps

_KERNELS = EmitOptions(static=True, dialect=EMBEDDED)

WORD = 4
"""Bytes loaded at once by instructions for narrower elements."""

_ALIGNED = "MCC_ALIGNED"
_ALIGNMENT = f"""\
#ifdef __GNUC__
#define {_ALIGNED} __attribute__((aligned({WORD})))
#else /* no instructions for several elements either */
#define {_ALIGNED}
#endif"""


MARK = "mcc_step"
"""Prefix of labels before steps, followed by the step's number, and that of the copy."""


def source(model: EmbeddedModel, marked: bool = False) -> str:
    """Text of the file; ``marked``: with labels at the beginnings of steps, for GCC."""
    prelude = Prelude(EMBEDDED)
    kernels = definitions(model.program.callees, prelude, _KERNELS)
    steps = EmbeddedSteps(model, prelude)
    write_steps(model.program, steps, MARK if marked else "")
    given = tuple(name for name, _ in parameters(model))
    words = bool(model.machine.features)
    return "\n\n".join(
        [
            _head(model),
            f'#include "{model.name}.h"',
            prelude.text(),
            *([_ALIGNMENT] if words else []),
            *(array_text(one, words) for one in model.arrays),
            *kernels,
            *_reset(model),
            steps.definition(signature(model), given),
        ]
    ) + "\n"  # fmt: skip


def _head(model: EmbeddedModel) -> str:
    flags = " ".join(("-std=c99", "-O2", *model.machine.flags))
    lines = [
        f"{model.name}.c: the code and the constants of {model.name}.h, written by modelcc.",
        "",
        *head_lines(model),
        f"Compile with: {flags}",
        *(f"Link with {n}, and have its headers found." for n in libraries(model.program)),
        "",
        "Comments before functions and steps name the nodes of the model that they compute.",
    ]
    return f"/*\n{commented(lines)}\n */"


def array_text(one: ConstantArray, words: bool) -> str:
    """A constant array, with the names of its constants in the model; with ``words``, it may be
    loaded in whole words."""
    shape = "x".join(map(str, one.array.shape))
    of = f" of {', '.join(one.source)}" if one.source else ""
    note = f"{', '.join(one.names)}: {one.dtype}[{shape}]{of}"
    aligned = f" {_ALIGNED}" if words and one.dtype.bytes < WORD else ""
    head = f"static const {memory_type(one.dtype)} {one.field}[{one.array.size}]{aligned} = {{"
    return "\n".join(
        [
            *folded(f"/* {comment(note)} */", ""),
            head,
            *value_rows(one.array, one.dtype, EMBEDDED, 4),
            "};",
        ]
    )


def _reset(model: EmbeddedModel) -> Iterator[str]:
    """Resets states to their initial values."""
    if not model.states:
        return
    lines: list[str] = []
    for state in model.states:
        first = model.first(state)
        call, given = ("memset", "0") if first is None else ("memcpy", first.field)
        lines.append(f"    {call}({state.field}, {given}, {state.type.bytes});")
    yield "\n".join([reset_signature(model), "{", *lines, "}"])


class EmbeddedSteps(StepsCode):
    """The body of the function that runs the model."""

    def __init__(self, model: EmbeddedModel, prelude: Prelude) -> None:
        super().__init__(model.program, prelude)
        self._model = model
        self._code.scope.taken |= {*model.spelled.values()}

    def clock(self, times: str, position: int) -> None:
        """A label, at which another program can record the time."""
        self._code.line(f'__asm__ volatile("{times}_{position}_%=:" ::: "memory");')

    def passed(self, name: str, place: Place, position: int) -> str:
        names = self._model.program.named(place)
        return self._model.spelled[names[position]]

    def within(self, name: str, start: str, offset: Index) -> str:
        place = (
            f"(uint8_t *){start}"
            if offset == 0
            else f"(uint8_t *){start} + {self._index.inner(offset)}"
        )
        return self._pointer(name, place, str(self._types[name]))

    def definition(self, head: str, given: tuple[str, ...]) -> str:
        """The whole function; ``given`` are its parameters."""
        words = words_of(self._code.lines)
        unused = [name for name in given if not words[name]]
        if unused:
            self._code.line(", ".join(f"(void){name}" for name in unused) + ";")
        self._code.line("return 0;")
        return "\n".join([*folded(head, ""), "{", *self._code.lines, "}"])
