"""Verdicts of Vela on TFLite files: the operators that it leaves to the CPU."""

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
    """Results of operators, and kinds of those without results, that stay on the CPU; or all, if
    Vela rejected the model with a message."""

    results: frozenset[str]
    kinds: frozenset[str]
    refused: str = ""


def run_vela(data: bytes, target: str, folder: Path) -> VelaVerdict:
    """Compiles a file whose tensors have unique names (see :func:`named_apart`)."""
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
    """Vela's output, in this process: a separate process takes a hundred times as long."""
    vela: Any = import_module("ethosu.vela.vela")
    with tempfile.TemporaryFile() as file, _printing_to(file.fileno()):
        try:
            vela.main(arguments)
        except (Exception, SystemExit) as error:  # it prints, raises or exits on rejection
            print(error)
        sys.stdout.flush()
        file.seek(0)
        return file.read().decode("utf-8", "replace")


@contextmanager
def _printing_to(target: int) -> Generator[None]:
    """Redirects both streams of the process to a file, including those of C++."""
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
    """The line with the reason, from the output before the model is rejected."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = (line for line in lines if "rror" in line)
    return next(found, lines[-1] if lines else "no output")


def _left(model: TfliteModel) -> frozenset[str]:
    """Results of the operators of a compiled file that do not run on the accelerator."""
    return frozenset(
        subgraph.tensors[number].name
        for subgraph in model.subgraphs
        for operator in subgraph.operators
        if operator.name != _NPU
        for number in operator.outputs
    )


def named_apart(data: bytes) -> tuple[bytes, TfliteModel]:
    """The file with unique tensor names, and its contents."""
    model = read_model(data, "model")
    subgraphs = tuple(_named(s, n) for n, s in enumerate(model.subgraphs))
    written = edited(data, model, replace(model, subgraphs=subgraphs))
    return written, read_model(written, "model")


def _named(subgraph: TfliteSubgraph, number: int) -> TfliteSubgraph:
    tensors = (replace(t, name=f"s{number}t{n}") for n, t in enumerate(subgraph.tensors))
    return replace(subgraph, tensors=tuple(tensors))
