"""What Vela makes of TFLite files: which of their operators it leaves to the processor."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from modelcc.frontends.tflite.module import TfliteModel, TfliteSubgraph
from modelcc.frontends.tflite.reading import read_model
from modelcc.frontends.tflite.writing import edited

_WARNING = re.compile(r"^Warning \(supported operators\) operator: (\S+), ofm: '(.*)'$", re.M)
_CONFIGURATIONS = {"ethos-u55": "ethos-u55-256", "ethos-u65": "ethos-u65-256"}
_NPU = "ethos-u"


@dataclass(frozen=True)
class VelaVerdict:
    """Results of operators, and kinds of those without any, that stay on the processor; or all,
    since Vela refused the model with a message."""

    results: frozenset[str]
    kinds: frozenset[str]
    refused: str = ""


def run_vela(data: bytes, target: str, folder: Path) -> VelaVerdict:
    """Compile a file whose tensors have names of their own (see :func:`named_apart`)."""
    source = folder / "model.tflite"
    source.write_bytes(data)
    result = folder / "model_vela.tflite"
    result.unlink(missing_ok=True)
    chip = ["--accelerator-config", _CONFIGURATIONS[target]]
    text = _told([str(source), "--output-dir", str(folder), *chip])
    if not result.exists():
        return VelaVerdict(frozenset(), frozenset(), _refusal(text))
    named = {(kind, name.removesuffix("_act")) for kind, name in _WARNING.findall(text)}
    left = _left(read_model(result.read_bytes(), "vela"))
    return VelaVerdict(
        frozenset(name for _, name in named) | left, frozenset(kind for kind, _ in named)
    )


def _told(arguments: list[str]) -> str:
    """What Vela prints, in this process: a process of its own takes a hundred times as long."""
    vela: Any = import_module("ethosu.vela.vela")
    with tempfile.TemporaryFile() as file, _printing_to(file.fileno()):
        try:
            vela.main(arguments)
        except (Exception, SystemExit) as error:  # it prints, raises or ends where it refuses
            print(error)
        sys.stdout.flush()
        file.seek(0)
        return file.read().decode("utf-8", "replace")


@contextmanager
def _printing_to(target: int) -> Generator[None]:
    """Both streams of the process go to a file, those of C++ included."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [(stream, os.dup(stream)) for stream in (1, 2)]
    for stream, _ in saved:
        os.dup2(target, stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, copy in saved:
            os.dup2(copy, stream)
            os.close(copy)


def _refusal(text: str) -> str:
    """The line that says why, of what is printed before the model is given up."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = (line for line in lines if "rror" in line)
    return next(found, lines[-1] if lines else "no output")


def _left(model: TfliteModel) -> frozenset[str]:
    """Results of the operators of a compiled file that are no work of the accelerator."""
    return frozenset(
        subgraph.tensors[number].name
        for subgraph in model.subgraphs
        for operator in subgraph.operators
        if operator.name != _NPU
        for number in operator.outputs
    )


def named_apart(data: bytes) -> tuple[bytes, TfliteModel]:
    """The file with a name of its own for each tensor, and what it then holds."""
    model = read_model(data, "model")
    subgraphs = tuple(_named(s, n) for n, s in enumerate(model.subgraphs))
    written = edited(data, model, replace(model, subgraphs=subgraphs))
    return written, read_model(written, "model")


def _named(subgraph: TfliteSubgraph, number: int) -> TfliteSubgraph:
    tensors = (replace(t, name=f"s{number}t{n}") for n, t in enumerate(subgraph.tensors))
    return replace(subgraph, tensors=tuple(tensors))
