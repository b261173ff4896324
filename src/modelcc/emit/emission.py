"""Any form of a model along the pipeline: text of levels, and output of targets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelcc.driver import Translation, pipeline
from modelcc.exporters.onnx import export_onnx, write_onnx
from modelcc.exporters.onnx.file import MOST
from modelcc.exporters.stablehlo import export_stablehlo
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.op import Op
from modelcc.levels.text import (
    LEVELS,
    constants_of,
    constants_path,
    level_text,
    parse_level,
    read_constants,
)
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.registry import dialects
from modelcc.options import Options
from modelcc.passes.graph.bodies import in_bodies
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.pipeline import Observer, PipelineStage, all_of, before_block, from_block, run_stages
from modelcc.report.formats import byte_text
from modelcc.report.stage_progress import announcer, log_stage
from modelcc.targets.base import MODULE_LINE, SCHEDULE, BuildConfig, Module, Target
from modelcc.targets.c.emitter import emit_c
from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.triton.program import triton_source

STABLEHLO, ONNX = "stablehlo", "onnx"
EXCHANGED = (STABLEHLO, ONNX)
"""The graph in exchange formats."""

BYTECODE, INTERPRETER = "bytecode", "interpreter"
"""Bytecode for the microcontroller interpreter, and the interpreter with the program's kernels."""

GPU_CODE = ("ptx", "cubin", "sass")
"""NVIDIA's assembly, its machine code, and its disassembly."""

SPIRV = "spirv"
"""Kernels as a module for OpenCL runtimes."""

TRITON = "triton"
"""A model's kernels in Triton, and Python that launches them."""

MSL = "msl"
"""Kernels in the Metal shading language."""

WEB, WGSL = "web", "wgsl"
"""A page that runs the model in a browser, and its kernels."""

FORMS = (
    "graph",
    *EXCHANGED,
    "tensor",
    TRITON,
    SCHEDULE,
    "launches",
    "loop",
    "program",
    "llvm",
    "asm",
    *GPU_CODE,
    "opencl",
    SPIRV,
    "c",
    "obj",
    "so",
    BYTECODE,
    INTERPRETER,
    MSL,
    WGSL,
    WEB,
)
"""Everything that can be emitted, from the model to machine code."""

SOURCES = ("llvm", "c", MSL)
"""Forms that are source languages of targets."""

INTEGERS = (DequantizeLinear,)
"""Ops that are not folded in exchange formats, so that constants stay integers."""

_SUFFIX: Mapping[str, str] = {
    STABLEHLO: ".mlir",
    ONNX: ".onnx",
    SCHEDULE: ".schedule.txt",
    "llvm": ".ll",
    "asm": ".s",
    "ptx": ".ptx",
    "cubin": ".cubin",
    "sass": ".sass",
    "opencl": ".cl",
    SPIRV: ".spv",
    "c": ".c",
    "obj": ".o",
    "so": ".so",
    BYTECODE: ".mcb",
    INTERPRETER: "",
    MSL: ".metal",
    TRITON: ".py",
    WGSL: ".wgsl",
    WEB: "",
}
_LINKED = ("obj", "so")
"""Forms to be linked or loaded."""

_BINARY = (ONNX, "cubin", SPIRV, "obj", "so", BYTECODE)


@dataclass(frozen=True)
class Emission:
    """One form of a model: its bytes, the suffix of its file and the constants it refers to."""

    form: str
    contents: bytes
    suffix: str
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])


def is_binary(form: str) -> bool:
    """Whether it is not text."""
    return form in _BINARY


def suffix_of(form: str) -> str:
    """The file suffix of ``form``."""
    return LEVELS[form].suffix if form in LEVELS else _SUFFIX[form]


def emit(
    source: Any,
    level: str | None,
    form: str,
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None = None,
) -> Emission:
    """``source`` (a model, or a program of ``level``) in ``form``.

    :class:`ModelError` if the target does not support the form, or it precedes the level.
    """
    check_form(form, level, target)
    target = target.for_linking() if form in _LINKED else target
    if form in EXCHANGED:
        stages = before_block(pipeline(target, options, config), "graph")
        graph = _run(resumed(stages, level) if level else stages, source, observer, config)
        contents = onnx_model(graph) if form == ONNX else stablehlo_text(graph).encode()
        return Emission(form, contents, _SUFFIX[form])
    if form in SOURCES and level not in ("loop", "llvm"):
        stages = before_block(pipeline(target, options, config), "emit")
        program = _run(resumed(stages, level), source, observer, config)
        contents = target.complete(program).encode()
        return Emission(form, contents, _SUFFIX[form], constants_of(program))
    if form == TRITON:
        stages = before_block(pipeline(target, options, config), "schedule")
        program = _run(resumed(stages, level), source, observer, config)
        contents = triton_source(program).encode()
        return Emission(form, contents, _SUFFIX[form], constants_of(program))
    if form == SCHEDULE:
        stages = before_block(pipeline(target, options, config), "schedule")
        program = _run(resumed(stages, level), source, observer, config)
        return Emission(form, target.list_schedules(program).encode(), _SUFFIX[form])
    if (level, form) == ("loop", "c"):
        return Emission(form, emit_c(source).encode(), _SUFFIX[form])
    if form not in LEVELS:
        modules = _modules(source, level, target, options, config, observer)
        contents = _rendered(modules, level, form, target, config)
        return Emission(form, contents, _SUFFIX[form])
    stages = before_block(pipeline(target, options, config), LEVELS[form].leaves)
    program = source
    if level != form:
        program = _run(resumed(stages, level), source, observer, config)
    if form == "loop" and level != "loop":
        program = program.functions
    constants = constants_of(program)
    return Emission(form, level_text(program).encode(), LEVELS[form].suffix, constants)


def check_form(form: str, level: str | None, target: Target) -> None:
    """:class:`ModelError` if ``form`` cannot be made from ``level`` (None: a model)."""
    if form not in (*LEVELS, *EXCHANGED, *target.forms):
        known = ", ".join((*LEVELS, *EXCHANGED, *target.forms))
        raise ModelError(f"target {target.name!r} cannot emit {form!r}", (), f"it knows {known}")
    if level is not None and FORMS.index(form) < FORMS.index(level):
        raise ModelError(f"{form!r} comes before {level!r} and cannot be made from it")


def stablehlo_text(graph: Graph) -> str:
    """The simplified graph; :class:`ModelError` lists unsupported nodes."""
    if graph.interface is not None and not graph.interface.is_plain:
        message = "arguments or results that are no tensors have no form in StableHLO"
        raise ModelError(message, (graph.name,))
    return export_stablehlo(simplified(graph))


def onnx_model(graph: Graph) -> bytes:
    """The simplified graph as an ONNX file.

    :class:`ModelError` lists unsupported nodes, or says that the constants are too large for a
    file.
    """
    simple = simplified(graph, INTEGERS)
    room = sum(constant.nbytes for constant in simple.constants.values())
    if room > MOST:
        message = f"its constants take {byte_text(room)}, and a file of ONNX ends at 2 GB"
        hint = "modelcc.export_onnx writes them into a file beside it"
        raise ModelError(message, (graph.name,), hint)
    return export_onnx(simple).SerializeToString()


def write_simplified(graph: Graph, path: Path) -> tuple[Path, ...]:
    """Writes the simplified graph as an ONNX file; returns the files written."""
    return write_onnx(simplified(graph, INTEGERS), path)


def simplified(graph: Graph, keep: tuple[type[Op], ...] = ()) -> Graph:
    """The graph for export: after constant folding, except of ops to ``keep``, and dead code
    elimination."""
    for step in (FoldConstants(keep=keep), CommonSubexpressions(), DeadCode()):
        graph = in_bodies(step)(graph)
    return graph


def read_level(path: Path, level: str, constants: Path | None) -> Any:
    """The program in the text file ``path``; LLVM text stays text, as a module."""
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is no text", (), "leave --from out for a model") from error
    if level == "llvm":
        return parse_modules(path.stem, text)
    beside = constants if constants is not None else constants_path(path)
    try:
        return parse_level(level, text, read_constants(beside), dialects())
    except ModelError as error:
        raise ModelError(str(error), (str(path),)) from error


def parse_modules(name: str, text: str) -> tuple[Module, ...]:
    """The modules of a text written by ``--emit llvm``, or one module called ``name``."""
    parts = re.split(rf"^{re.escape(MODULE_LINE)}(.*)\n", text, flags=re.MULTILINE)
    if len(parts) == 1:
        return (Module(name, text),)
    return tuple(Module(n.strip(), t) for n, t in zip(parts[1::2], parts[2::2], strict=True))


def _rendered(
    modules: tuple[Module, ...], level: str | None, form: str, target: Target, config: BuildConfig
) -> bytes:
    try:
        return target.render(modules, form, config)
    except CodegenError as error:
        if level != "llvm":
            raise
        raise ModelError(str(error)) from error  # the user's own text


def _run(
    stages: Sequence[PipelineStage], source: Any, observer: Observer | None, config: BuildConfig
) -> Any:
    begin = announcer(stages, config)
    return run_stages(stages, source, all_of(log_stage, observer), begin)


def entering_block(level: str | None) -> str:
    """The pipeline block at which a program of ``level`` (None: a model) enters.

    :class:`ModelError` for levels that are not whole programs.
    """
    if level is None:
        return "import"
    enters = LEVELS[level].enters if level in LEVELS else None
    if enters is None:
        hint = "it can be emitted as llvm, asm, obj or so"
        raise ModelError(f"a model cannot be resumed from {level!r} text", (), hint)
    return enters


def resumed(stages: tuple[PipelineStage, ...], level: str | None) -> tuple[PipelineStage, ...]:
    """The remaining ``stages`` for a program of ``level``."""
    entering = entering_block(level)
    blocks = [stage.block for stage in stages]
    return from_block(stages, entering) if entering in blocks else ()


def _modules(
    source: Any,
    level: str | None,
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None,
) -> tuple[Module, ...]:
    if level == "llvm":
        return source
    if level == "loop":
        return target.emit_functions(source)
    stages = before_block(pipeline(target, options, config), "build")
    emitted: Translation = _run(resumed(stages, level), source, observer, config)
    return emitted.modules
