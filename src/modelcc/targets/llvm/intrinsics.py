"""Processor instructions as LLVM text, from their templates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from modelcc.ir.loop import Instruction, InstructionOperand, Intrinsic
from modelcc.targets.isa.table import encodings_of
from modelcc.targets.isa.templates import LlvmTemplate
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.memory import MemoryCode
from modelcc.targets.llvm.values import value_type, vector_of

_NAME = re.compile(r"%(\w+)")


class IntrinsicCode:
    """Emits :class:`~modelcc.ir.loop.Intrinsic` into ``code``."""

    def __init__(self, code: Code, memory: MemoryCode) -> None:
        self._code = code
        self._memory = memory
        self._templates: dict[tuple[str, int], LlvmTemplate] = {}

    def operand(self, e: Intrinsic, args: Sequence[str]) -> str:
        """The result for ``args``; ``NotImplementedError`` if the processor lacks the instruction,
        which :mod:`modelcc.passes.loop.expand_instructions` then expands."""
        lanes = e.lanes
        template = self._template(e.instruction, lanes)
        shapes = zip(e.instruction.operands, e.args, args, template.types, strict=True)
        given = {o.name: self._given(o, arg.lanes, lanes, v, t) for o, arg, v, t in shapes}
        result = ""
        for name, value in template.lines:
            spelled = _NAME.sub(lambda found: given[found[1]], value)
            result = given[name] = self._code.emit(spelled)
        self._code.declarations.update(dict.fromkeys(template.declarations))
        return self._cast(result, template.result, value_type(e.dtype, lanes))

    def _template(self, instruction: Instruction, lanes: int) -> LlvmTemplate:
        known = self._templates.get((instruction.name, lanes))
        if known is not None:
            return known
        table = encodings_of(self._code.instructions.encodings, instruction, lanes)
        found = next((encoding.llvm for encoding in table if encoding.llvm), None)
        if found is None:
            raise NotImplementedError(
                f"the processor has no instruction '{instruction.name}' for {lanes} lanes; "
                "run the expand_instructions pass first"
            )
        return self._templates.setdefault((instruction.name, lanes), found)

    def _given(
        self, operand: InstructionOperand, count: int, lanes: int, value: str, wanted: str
    ) -> str:
        """An operand of ``count`` elements, repeated for every lane, of the type that a template
        expects."""
        own = value_type(operand.dtype, count)
        if count == lanes * operand.each:
            return self._cast(value, own, wanted)
        word = f"i{operand.dtype.bits * operand.each}"
        repeated = self._memory.broadcast(self._cast(value, own, word), word, lanes)
        return self._cast(repeated, vector_of(word, lanes), wanted)

    def _cast(self, value: str, source: str, target: str) -> str:
        if source == target:
            return value
        return self._code.emit(f"bitcast {source} {value} to {target}")
