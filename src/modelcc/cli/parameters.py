"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from modelcc.cache.measurements import with_measurements
from modelcc.environment import Environment
from modelcc.ir.errors import ModelError
from modelcc.options import (
    ACCURACIES,
    KERNELS,
    PRECISIONS,
    STANDARD,
    Options,
    dimension,
    library,
    rewrite_limit,
)
from modelcc.runtime.pool import available_cores

Command = TypeVar("Command", bound=Callable[..., object])


class ModelPath(click.Path):
    """The path of a file; an empty one is refused, which :class:`Path` takes for this folder."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """A :class:`Path`."""
        if not value:
            self.fail("the name is empty.", param, ctx)
        return super().convert(value, param, ctx)


MODEL = ModelPath(path_type=Path, dir_okay=False)


def compiling(command: Command) -> Command:
    """Options that say how to compile."""
    for option in reversed(_COMPILING):
        command = option(command)
    return command


def feeding(command: Command) -> Command:
    """Options that say what to run on."""
    for option in reversed(_FEEDING):
        command = option(command)
    return command


_COMPILING = (
    click.option("--target", default="native", show_default=True, metavar="NAME",
                 help="Kind of machine; `modelcc targets` lists them."),
    click.option("--cpu", default="", metavar="NAME",
                 help="Processor to compile for, e.g. x86-64-v3.  [default: MODELCC_CPU, "
                      "or this machine's]"),
    click.option("-O", "--optimize", type=click.IntRange(0, 3), default=2, show_default=True,
                 help="0 compiles quickest, 3 tries hardest."),
    click.option("--threads", type=click.IntRange(1), metavar="N",
                 help="Threads to run on.  [default: MODELCC_NUM_THREADS, or one per core]"),
    click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE",
                 help="Fix a named dimension (batch=8) or bound it (batch=1..512)."),
    click.option("--accuracy", type=click.Choice(ACCURACIES), default=STANDARD, show_default=True,
                 help="strict does without Winograd's and Strassen's algorithms."),
    click.option("--precision", type=click.Choice(PRECISIONS), default="f32", show_default=True,
                 help="What products of f32 multiply, rounded to fewer bits or not."),
    click.option("--winograd/--no-winograd", default=None,
                 help="3x3 convolutions by Winograd's algorithms where that is faster; their "
                      "rounding errors may be a few times larger.  [default: as --accuracy says]"),
    click.option("--strassen/--no-strassen", default=None,
                 help="Matrix products by Strassen's algorithm where that is faster; its "
                      "rounding errors are a few times larger.  [default: as --accuracy says]"),
    click.option("--schedule", type=click.Path(path_type=Path), metavar="FILE",
                 help="Run kernels as this file says, which --emit schedule prints."),
    click.option("--library", "libraries", multiple=True, metavar="NAME[=PATH]",
                 help="A library that kernels may call: openblas where --schedule says so, and "
                      "`modelcc tune` tries it; cmsis-nn=PATH on Arm microcontrollers, where "
                      "it is estimated to take fewer instructions; cublaslt and cudnn on "
                      "NVIDIA's GPUs, where these are estimated to be faster."),
    click.option("--kernels", type=click.Choice(KERNELS), default=None,
                 help="library: libraries compute whatever they can; auto: where that is "
                      "estimated to be faster; generated: nothing.  NVIDIA's GPUs have cublaslt "
                      "and cudnn if none is named.  "
                      "[default: auto with --library, else generated]"),
    click.option("--tuned", is_flag=True,
                 help="Run kernels as `modelcc tune` found best on this machine."),
    click.option("--unchecked", is_flag=True,
                 help="Leave out the checks of indices that come from data; one that is out of "
                      "range then reads or writes whatever is there."),
    click.option("--measured/--no-measured", default=True, show_default=True,
                 help="Use what `modelcc machine --measure` found, in code for this machine."),
    click.option("--no-cache", is_flag=True, help="Compile afresh and keep nothing."),
    click.option("--skip", multiple=True, metavar="STAGE",
                 help="Leave a stage of the compiler out, to find a fault."),
    click.option("--stop-after", metavar="STAGE=N",
                 help="Let a stage do N rewrites only, to find a fault."),
)  # fmt: skip

_FEEDING = (
    click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE.npy",
                 help="An input from a file; those not given are random."),
    click.option("--seed", type=int, default=0, show_default=True,
                 help="Seed of random inputs."),
    click.option("--size", "sizes", multiple=True, metavar="NAME=SIZE",
                 help="Size of a named dimension in random inputs."),
)  # fmt: skip


class Compiling(TypedDict):
    """What the options of :func:`compiling` say."""

    target: str
    cpu: str
    optimize: int
    threads: int | None
    dims: Sequence[str]
    accuracy: str
    precision: str
    winograd: bool | None
    strassen: bool | None
    schedule: Path | None
    libraries: Sequence[str]
    kernels: str | None
    tuned: bool
    unchecked: bool
    measured: bool
    skip: Sequence[str]
    stop_after: str | None


def options_of(environment: Environment, asked: Compiling) -> Options:
    """Compiler options from the command line and the environment."""
    default = environment.threads if environment.threads is not None else available_cores()
    threads, schedule, stop_after = asked["threads"], asked["schedule"], asked["stop_after"]
    options = Options(
        target=asked["target"],
        cpu=asked["cpu"] or environment.cpu,
        optimize=asked["optimize"],
        threads=default if threads is None else threads,
        dims=tuple(dimension(text) for text in asked["dims"]),
        accuracy=asked["accuracy"],
        precision=asked["precision"],
        winograd=asked["winograd"],
        strassen=asked["strassen"],
        libraries=tuple(library(text) for text in asked["libraries"]),
        kernels=asked["kernels"],
        tuned=asked["tuned"],
        schedule="" if schedule is None else schedule_text(schedule),
        unchecked=asked["unchecked"],
        skip=tuple(asked["skip"]),
        limit=None if stop_after is None else rewrite_limit(stop_after),
    )
    return with_measurements(options, environment.cache if asked["measured"] else None)


def schedule_text(path: Path) -> str:
    """The text of a file of schedules; :class:`ModelError` if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read the schedules in {path}: {error}") from error


def check_writable(*paths: Path | None) -> None:
    """:class:`ModelError` before any work if the folder of a path does not exist."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise ModelError(f"cannot write {path}: there is no folder {path.parent}")


def check_files(*paths: Path | None) -> None:
    """:class:`ModelError` before any work if files cannot be written: a folder is there, or this
    user may not."""
    check_writable(*paths)
    effective = os.access in os.supports_effective_ids
    for path in paths:
        if path is not None and path.is_dir():
            raise ModelError(f"cannot write {path}: it is a folder", (), "name a file")
        if path is not None and not os.access(path.parent, os.W_OK, effective_ids=effective):
            reason = f"cannot write {path}: this user may not write in its folder"
            raise ModelError(reason, (), "name a file in another one")


def sizes_of(texts: Sequence[str]) -> dict[str, int]:
    """Sizes of named dimensions from ``NAME=SIZE`` texts."""
    sizes: dict[str, int] = {}
    for text in texts:
        name, size = dimension(text)
        if not isinstance(size, int):
            raise ModelError(f"--size {text} is a range", (), "give one number")
        if name in sizes:
            raise ModelError(f"--size has the dimension {name!r} twice", (), "give each one size")
        sizes[name] = size
    return sizes
