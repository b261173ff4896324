"""``modelcc compile``: an artifact, or any level on the way to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Unpack

import click

from modelcc.artifact.file import Artifact
from modelcc.artifact.replacement import replace_contents, replace_file
from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import note, output_console, print_json, progress_of
from modelcc.cli.outputs import ARTIFACT, check_outputs, check_suffix, is_artifact, may_be_read
from modelcc.cli.parameters import MODEL, Compiling, check_writable, compiling, options_of
from modelcc.cli.verbosity import verbosity_options
from modelcc.driver import Compiled, compile_model, target_of
from modelcc.emit.bytecode import deliver_interpreter, emit_bytecode
from modelcc.emit.delivery import Delivery, deliver
from modelcc.emit.dumping import dump_observer
from modelcc.emit.emission import (
    BYTECODE,
    FORMS,
    INTERPRETER,
    MSL,
    SPIRV,
    TRITON,
    WEB,
    WGSL,
    Emission,
    check_form,
    emit,
    entering_block,
    is_binary,
    read_level,
    suffix_of,
)
from modelcc.environment import Environment
from modelcc.frontends.choice import ONNX, frontend_of
from modelcc.frontends.onnx.external import external_files
from modelcc.frontends.onnx.loader import load
from modelcc.ir.errors import ModelError
from modelcc.levels.text import LEVELS, constants_path, write_constants
from modelcc.pipeline import Observer
from modelcc.report.formats import byte_text
from modelcc.report.in_artifact import report_in
from modelcc.report.page import report_page
from modelcc.report.tables import report_tables, stage_table
from modelcc.sizes import bytes_of
from modelcc.targets.c.delivery.facts import DeliveryRequest, WeightsForm
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.c.delivery.naming import checked_prefix, prefix_of
from modelcc.targets.native.host import PORTABLE
from modelcc.version import VERSION

_ONLY: Mapping[str | None, str] = MappingProxyType(
    {
        WEB: "webgpu",
        WGSL: "webgpu",
        MSL: "metal",
        TRITON: "triton",
        "opencl": "opencl:c",
        SPIRV: "opencl:spirv",
    }
)
"""Forms of one target."""

ARDUINO = "arduino"
"""C in a folder that is an Arduino library."""

HELP = """Compile MODEL (.onnx) for this machine, or look at any level on the way.

\b
  modelcc compile model.onnx                      writes model.mcc
  modelcc compile model.onnx -o net.mcc --dim batch=1..64
  modelcc compile model.onnx --report             kernels, memory plan, times
  modelcc compile model.onnx --page plan.html     the memory plan as a drawing
  modelcc compile model.onnx --emit graph         print the graph after its passes
  modelcc compile model.onnx --emit program -o d/ write its text and its constants into d/
  modelcc compile d/model.program.txt --from program
  modelcc compile model.onnx --emit asm | less
  modelcc compile model.onnx --emit c -o folder/  header, C, weights, example, CMake file
  modelcc compile model.onnx --emit c -o model.c  everything but the weights in one file
  modelcc compile model.onnx --target cortex-m4 --emit arduino -o folder/   an Arduino library
  modelcc compile model.tflite --target cortex-m4 --emit bytecode     writes model.mcb
  modelcc compile model.tflite --target cortex-m4 --emit interpreter -o folder/
  modelcc compile model.onnx --target cortex-m4 --ram 20K --emit c -o folder/
  modelcc compile model.onnx --emit web -o folder/    a page that runs it in browsers
  modelcc compile model.onnx --pass-timing --dump-dir dumps/
"""


@click.command("compile", help=HELP)
@click.argument("model", type=MODEL)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="File to write, or folder for --emit.  [default: MODEL with .mcc]",
)
@click.option(
    "--emit",
    "form",
    type=click.Choice([*FORMS, ARDUINO]),
    metavar="FORM",
    help=f"Print this form instead: {', '.join(FORMS)}; or write an Arduino library: {ARDUINO}.",
)
@click.option(
    "--from",
    "level",
    type=click.Choice([*LEVELS, "llvm"]),
    metavar="LEVEL",
    help=f"MODEL is the text of this level: {', '.join(LEVELS)} or llvm.",
)
@click.option(
    "--constants",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Constants of --from.  [default: MODEL with .npz]",
)
@click.option(
    "--name",
    metavar="NAME",
    help="What names in C begin with (--emit c -o FOLDER/), or a page's title (--emit web).  "
    "[default: MODEL]",
)
@click.option(
    "--weights",
    type=click.Choice(["bin", "array", "incbin"]),
    help="Weights of --emit c -o FOLDER/: a file to load, a C array, or a file that the "
    "assembler puts into the program.  [default: bin]",
)
@click.option(
    "--firmware",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="A kernels.json that --emit interpreter wrote: what the firmware has "
    "(--emit bytecode), or is to have besides (--emit interpreter).",
)
@click.option(
    "--ram",
    metavar="SIZE",
    help="Memory that a microcontroller has (20K, or bytes): rows are streamed through layers "
    "as far as they must be to fit.",
)
@click.option("--report", "show_report", is_flag=True, help="Print kernels and memory plan.")
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write the report as an HTML page.",
)
@click.option("--pass-timing", is_flag=True, help="Print the seconds of each stage.")
@click.option(
    "--dump-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the program after every stage into this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@compiling
@verbosity_options
@click.pass_obj
def compile_command(
    environment: Environment,
    model: Path,
    output: str | None,
    form: str | None,
    level: str | None,
    constants: Path | None,
    name: str | None,
    weights: WeightsForm | None,
    firmware: tuple[Path, ...],
    ram: str | None,
    show_report: bool,
    page: Path | None,
    pass_timing: bool,
    dump_dir: Path | None,
    as_json: bool,
    no_cache: bool,
    **asked: Unpack[Compiling],
) -> None:  # fmt: skip
    """See HELP."""
    arduino = form == ARDUINO
    form = "c" if arduino else form
    _choose_target(form, asked, environment)
    options = replace(options_of(environment, asked), ram=ram and bytes_of(ram))
    place = None if output is None else Path(output)
    is_folder = output is not None and (output.endswith(os.sep) or Path(output).is_dir())
    wanted = form or ("obj" if level == "llvm" else None)
    check_writable(place, page)
    in_folder = form == "c" and is_folder and level != "loop"
    _check_folder(ARDUINO if arduino else form, bool(name or weights), in_folder, is_folder)
    _check_firmware(form, firmware)
    path = _destination(model, place, is_folder, wanted)
    _check_outputs(model, level, constants, path, page, wanted)
    observer: Observer | None = None if dump_dir is None else dump_observer(dump_dir)
    with progress_of() as progress:
        config = build_config_of(environment, no_cache or pass_timing, progress)
        target = target_of(options, config, model)
        if wanted is not None:
            check_form(wanted, level, target)
        source = read_level(model, level, constants) if level else model
        result: Emission | Compiled | Delivery
        if in_folder:
            prefix = prefix_of(stem_of(model)) if name is None else checked_prefix(name)
            form_of = weights or "bin"
            request = DeliveryRequest(prefix, form_of, model.name, VERSION, arduino=arduino)
            result = deliver(source, level, request, target, options, config, observer)
        elif form in (BYTECODE, INTERPRETER):
            made = emit_bytecode if form == BYTECODE else deliver_interpreter
            own = prefix_of(stem_of(model))
            result = made(source, level, own, firmware, target, options, config, observer)
        elif form == WEB:
            own = stem_of(model) if name is None else name
            result = _deliver_page()(source, level, own, target, options, config, observer)
        elif wanted is not None:
            result = emit(source, level, wanted, target, options, config, observer)
        else:
            result = compile_model(source, options, config, observer, entering_block(level))
    _store(result, path, place, is_folder, partial(_sources, model, level, constants))
    if isinstance(result, Compiled) and path is not None:
        _tell(result, path, page, show_report, pass_timing, as_json)


def _choose_target(form: str | None, asked: Compiling, environment: Environment) -> None:
    """The target that a form is of, where none was asked for."""
    if asked["target"] != "native":
        return
    if form in _ONLY:
        asked["target"] = _ONLY[form]
    if form == "c":
        asked["target"] = "c"
        asked["cpu"] = asked["cpu"] or environment.cpu or PORTABLE  # C is for taking elsewhere


def _deliver_page() -> Callable[..., Delivery]:
    """What writes pages, imported when one is wanted: it needs LLVM, and printing C does not."""
    deliver: Callable[..., Delivery] = import_module("modelcc.emit.web").deliver_page
    return deliver


def _store(
    result: Emission | Compiled | Delivery,
    path: Path | None,
    place: Path | None,
    is_folder: bool,
    sources: Callable[[Sequence[Path]], list[Path]],
) -> None:
    """Write what was made, to its file or into its folder; ``sources`` are not written over."""
    match result:
        case Emission():
            _write_emission(result, path, is_folder)
        case Delivery():
            _write_folder(result.files, place or Path(), sources)
        case Compiled():
            assert path is not None
            result.save(path)


def _check_folder(form: str | None, named: bool, in_folder: bool, is_folder: bool) -> None:
    """:class:`ModelError` for what is a folder, or is for one, where there is none."""
    if form == ARDUINO and not in_folder:
        raise ModelError("an Arduino library is a folder", (), "--emit arduino -o FOLDER/")
    if named and not in_folder and form != WEB:
        raise ModelError("--name and --weights are for C in a folder", (), "--emit c -o FOLDER/")
    if form == WEB and not is_folder:
        raise ModelError("a page is several files", (), "write a folder: -o FOLDER/")
    if form == INTERPRETER and not is_folder:
        raise ModelError("the interpreter is several files", (), "write a folder: -o FOLDER/")


def _check_firmware(form: str | None, firmware: tuple[Path, ...]) -> None:
    """:class:`ModelError` for kernels of another form than bytecode."""
    if firmware and form not in (BYTECODE, INTERPRETER):
        hint = f"--emit {BYTECODE} or --emit {INTERPRETER}"
        raise ModelError("--firmware is for bytecode and its interpreter", (), hint)


def stem_of(model: Path) -> str:
    """The file name up to its first dot."""
    return model.name.split(".")[0]


def _destination(model: Path, place: Path | None, is_folder: bool, form: str | None) -> Path | None:
    """The file to write: an artifact, or ``form``; None for what may be printed instead."""
    own = f"{stem_of(model)}{'.mcc' if form is None else suffix_of(form)}"
    if place is not None:
        return place / own if is_folder else place
    if form is None:
        return model.with_name(own)
    return Path(own) if is_binary(form) else None


def _check_outputs(
    model: Path,
    level: str | None,
    constants: Path | None,
    path: Path | None,
    page: Path | None,
    form: str | None,
) -> None:
    """Refuse to write over what is read, or under a name of something else."""
    if is_artifact(model):
        hint = "compile the model it was made from; run, bench and verify --against take this one"
        raise ModelError("it is a compiled model already", (str(model),), hint)
    outputs = [path, page]
    if path is not None and form in LEVELS:
        outputs.append(constants_path(path))
    check_outputs(outputs, _sources(model, level, constants, outputs))
    check_suffix(path, form or ARTIFACT)


def _sources(
    model: Path, level: str | None, constants: Path | None, outputs: Sequence[Path | None]
) -> list[Path]:
    """Files that are read; those beside a model only if one of ``outputs`` may be among them."""
    if level is not None:
        return [model, constants or constants_path(model)]
    has_files = model.is_file() and frontend_of(model) is ONNX
    if has_files and any(map(may_be_read, outputs)):
        return [model, *external_files(load(model))]
    return [model]


def _write_emission(emission: Emission, path: Path | None, is_folder: bool) -> None:
    if path is None:
        click.echo(emission.contents.decode(), nl=False)
        if emission.constants:
            note("constants are not part of the text; -o FOLDER/ writes them beside it")
        return
    if is_folder:
        path.parent.mkdir(exist_ok=True)
    replace_contents(path, emission.contents)
    note(f"wrote {path} ({byte_text(len(emission.contents))})")
    if emission.constants:
        beside = constants_path(path)
        replace_file(beside, lambda temporary: write_constants(temporary, emission.constants))
        note(f"wrote {beside}")


def _write_folder(
    files: Sequence[File], folder: Path, sources: Callable[[Sequence[Path]], list[Path]]
) -> None:
    """Write ``files``, unless they would replace one of ``sources``."""
    outputs = [folder / file.name for file in files]
    check_outputs(outputs, sources(outputs))
    folder.mkdir(exist_ok=True)
    for file in files:
        (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        replace_contents(folder / file.name, file.contents)
    sizes = ", ".join(f"{file.name} ({byte_text(len(file.contents))})" for file in files)
    note(f"wrote {folder}{os.sep}: {sizes}")


def _tell(
    compiled: Compiled,
    path: Path,
    page: Path | None,
    show_report: bool,
    pass_timing: bool,
    as_json: bool,
) -> None:
    report = report_in(compiled.artifact)
    if report is not None and page is not None:
        text = report_page(report)
        replace_contents(page, text)
    if as_json:
        print_json(_summary(compiled, path))
        return
    if show_report and report is not None:
        output_console().print(report_tables(report))
    if pass_timing:
        output_console().print(stage_table(compiled.times))
    seconds = sum(time.seconds for time in compiled.times)
    how = f"compiled in {seconds:.2f} s" if compiled.times else "found in the cache"
    note(f"wrote {path} ({byte_text(path.stat().st_size)}; {how})")


def _summary(compiled: Compiled, path: Path) -> dict[str, object]:
    artifact: Artifact = compiled.artifact
    report = report_in(artifact)
    return {
        "path": str(path),
        "bytes": path.stat().st_size,
        "cached": not compiled.times,
        "inputs": {spec.name: str(spec) for spec in artifact.manifest.inputs},
        "outputs": {spec.name: str(spec) for spec in artifact.manifest.outputs},
        "arena": report.arena if report else None,
        "lower_bound": report.lower_bound if report else None,
        "flops": report.flops if report else None,
        "kernels": len(report.kernels) if report else None,
        "stages": {time.stage: time.seconds for time in compiled.times},
    }
