"""The loop functions of a model, as they are compiled."""

from __future__ import annotations

from modelcc.driver import ModelSource, compile_model
from modelcc.ir.loop import Function
from modelcc.ir.program import Program
from modelcc.options import Options
from modelcc.pipeline import StageRun


def planned_functions(model: ModelSource, options: Options) -> tuple[Function, ...]:
    """Those of the program whose memory is planned."""
    programs: list[Program] = []

    def note(run: StageRun) -> None:
        if run.stage.name == "plan_memory":
            assert isinstance(run.after, Program)
            programs.append(run.after)

    compile_model(model, options, observer=note)
    (program,) = programs
    return program.functions
