"""C text of steps whose tensors are parameters, constant arrays and parts of the arena."""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.ir.program import Place
from modelcc.targets.c.code import folded, words_of
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.steps import StepsCode
from modelcc.targets.mcu.delivery.model import EmbeddedModel

MARK = "mcc_step"
"""What labels before steps begin with: the step's number follows, and one of the copy."""


class EmbeddedSteps(StepsCode):
    """The body of the function that runs the model."""

    def __init__(self, model: EmbeddedModel, prelude: Prelude) -> None:
        super().__init__(model.program, prelude)
        self._model = model
        self._code.scope.taken |= {*model.spelled.values()}

    def clock(self, times: str, position: int) -> None:
        """A label, where another program can note the time."""
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
