"""Writing the program after every stage."""

from __future__ import annotations

from pathlib import Path

from modelcc.driver import Translation
from modelcc.ir.graph import Graph
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.levels.text import level_text
from modelcc.pipeline import Observer, StageRun
from modelcc.targets.base import MODULE_LINE

_TEXTS = (Graph, TensorProgram, Program)


def dump_observer(folder: Path) -> Observer:
    """Writes the program after each stage that changed it: ``007-graph-Canonicalise.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0

    def dump(run: StageRun) -> None:
        nonlocal count
        count += 1
        text = _text(run.after)
        if text is not None and run.after != run.before:
            name = f"{count:03}-{run.stage.block}-{run.stage.name}.txt"
            (folder / name).write_text(text)

    return dump


def _text(program: object) -> str | None:
    if isinstance(program, Translation):
        return "\n".join(f"{MODULE_LINE}{module.name}\n{module.text}" for module in program.modules)
    return level_text(program) if isinstance(program, _TEXTS) else None
