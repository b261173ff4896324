"""The command ``modelcc``, its help and its exit codes.

0: done; 1: a result is wrong (``verify``), or the model does not fit (``check``); 2: something
about the model, the files or the arguments, all in one message; 3: a fault of modelcc.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

import click
from rich.console import Console

from modelcc.artifact.errors import ArtifactError
from modelcc.cli.verbosity import is_default, logging_to_stderr, verbosity_options
from modelcc.environment import read_environment
from modelcc.ir.errors import ModelError
from modelcc.report.progress import progress_bars
from modelcc.runtime.errors import InputError, LoadError, RunError
from modelcc.runtime.pool import PoolError
from modelcc.targets.c.toolchain import ToolchainError
from modelcc.version import VERSION

DIFFERS, USER_ERROR, INTERNAL_ERROR = 1, 2, 3

USER_FAULTS = (
    ModelError,
    ArtifactError,
    InputError,
    LoadError,
    PoolError,
    RunError,
    ToolchainError,
)

HELP = """A deep learning compiler: cc for models.

\b
  modelcc compile model.onnx                compile for this machine: model.mcc
  modelcc run model.mcc --input image.npy   run it (or straight from the .onnx)
  modelcc verify model.onnx --layers        is it right? where does it go wrong?
  modelcc bench model.onnx --against onnxruntime
  modelcc check model.onnx --target cortex-m4 --ram 64K   does it fit a microcontroller?
  modelcc profile model.onnx                how long does each layer take?
  modelcc compile model.onnx --emit graph   look at any level of the compiler

Each command explains itself: modelcc COMMAND --help.

\b
Environment:
  MODELCC_NUM_THREADS   threads to run on (default: one per core)
  MODELCC_JOBS          processes that compile (default: one per core)
  MODELCC_CPU           processor to compile for (default: this machine's)
  MODELCC_CACHE_DIR     where compiled models are kept (default: ~/.cache/modelcc);
                        empty for no cache

\b
Exit codes: 0 done, 1 a result differs or a model does not fit, 2 wrong model or arguments,
3 a fault of modelcc.
"""


COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "compile": ("modelcc.cli.compile", "compile_command"),
        "run": ("modelcc.cli.run", "run"),
        "bench": ("modelcc.cli.bench", "bench"),
        "quantize": ("modelcc.cli.quantize", "quantize"),
        "profile": ("modelcc.cli.profile", "profile"),
        "tune": ("modelcc.cli.tune", "tune"),
        "verify": ("modelcc.cli.verify", "verify"),
        "check": ("modelcc.cli.check", "check"),
        "compare": ("modelcc.cli.compare", "compare"),
        "inspect": ("modelcc.cli.inspect", "inspect"),
        "machine": ("modelcc.cli.machine", "machine"),
        "schedules": ("modelcc.cli.schedules", "schedules"),
        "cache": ("modelcc.cli.cache", "cache"),
        "ops": ("modelcc.cli.catalogue", "ops"),
        "targets": ("modelcc.cli.catalogue", "targets"),
        "version": ("modelcc.cli.version", "version_command"),
    }
)
"""Module and name of each command."""


class Commands(click.Group):
    """The commands, imported when they are wanted: running a compiled model needs no compiler."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        return getattr(import_module(module), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As ever; a bar tells that the compiler is loaded, unless the command is to be quiet."""
        shown = is_default() and _TELLING.isdisjoint(args)
        with progress_bars(shown) as progress:
            progress("loading the compiler", 0, 1)
            return super().resolve_command(ctx, args)


_TELLING = frozenset({"-q", "--quiet", "-v", "-vv", "--verbose", "-h", "--help"})
"""Options of commands with which nothing is drawn."""


@click.group(cls=Commands, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@verbosity_options
@click.version_option(VERSION, prog_name="modelcc")
@click.pass_context
def cli(context: click.Context) -> None:
    """Reads the environment, once."""
    context.obj = read_environment(os.environ)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, and prints one message on errors."""
    _print_anything()
    with logging_to_stderr():
        return _ended(arguments)


def _print_anything() -> None:
    """Have letters that the terminal's encoding lacks escaped, and not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _ended(arguments: Sequence[str] | None) -> int:
    console = Console(stderr=True, highlight=False)
    try:
        result = cli.main(arguments, prog_name="modelcc", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.Abort:
        console.print("interrupted")
        return 130
    except click.ClickException as error:
        error.show()
        return USER_ERROR
    except USER_FAULTS as error:
        return _failed(console, str(error))
    except (BrokenPipeError, SystemExit):  # SystemExit is what click makes of it
        # The reader of our output has gone (| head); point stdout elsewhere for the final flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _failed(console, f"{place}{error.strerror or error}")
    except MemoryError as error:
        return _failed(console, f"there is not enough memory{f': {error}' if str(error) else ''}")
    except Exception as error:  # the last line of defence: everything else is our fault
        traceback.print_exc()
        console.print(
            f"[bold red]internal error[/]: {type(error).__name__}; this is a fault of modelcc "
            f"{VERSION}, not of your model.\n  hint: please report it, with the lines above "
            "and the command",
            soft_wrap=True,
        )
        return INTERNAL_ERROR


def _failed(console: Console, message: str) -> int:
    console.print("[bold red]error[/]: ", end="")
    console.print(message, markup=False, soft_wrap=True)
    return USER_ERROR
