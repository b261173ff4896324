"""``modelcc version``: what is installed here, for reports of faults."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import click
import llvmlite.binding as llvm

from modelcc.cli.console import print_json, print_pairs
from modelcc.cli.verbosity import verbosity_options
from modelcc.runtime.pool import available_cores
from modelcc.targets.native.toolchain import llvm_version
from modelcc.version import VERSION

HELP = """Show the versions of modelcc, LLVM and the libraries it uses, and this processor with
its features. Add this to a report of a fault.
"""

_LIBRARIES = ("numpy", "ml_dtypes", "onnx", "llvmlite", "click", "rich", "onnxruntime", "pillow")


Fact = str | int | list[str] | dict[str, str | None]


@click.command("version", help=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@verbosity_options
def version_command(as_json: bool) -> None:
    """See HELP."""
    facts = _facts()
    if as_json:
        print_json(facts)
        return
    print_pairs((name, _text(value)) for name, value in facts.items())


def _text(value: Fact) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {known or '-'}" for name, known in value.items())
    return str(value) if isinstance(value, str | int) else " ".join(value)


def _facts() -> dict[str, Fact]:
    features = cast("dict[str, bool]", llvm.get_host_cpu_features())
    return {
        "modelcc": VERSION,
        "llvm": llvm_version(),
        "processor": llvm.get_host_cpu_name(),
        "features": sorted(name for name, there in features.items() if there),
        "cores": available_cores(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
