"""Models as C for microcontrollers: written, built for this machine, and run; small ones to try."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from modelcc.driver import target_of
from modelcc.emit.delivery import planned
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.elementwise import Add, Mul
from modelcc.options import Options
from modelcc.targets.base import BuildConfig
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.mcu.delivery.files import embedded_files
from modelcc.targets.mcu.delivery.model import EmbeddedModel, embedded_model
from modelcc.targets.mcu.emulation.boards import SOURCES
from modelcc.targets.mcu.emulation.program import MAIN, board_main
from modelcc.targets.mcu.target import McuTarget

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
_CHECKED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def keyword_spotter(channels: int = 8, height: int = 9, width: int = 5) -> ModelProto:
    """A small DS-CNN: a convolution, and twice one of each channel by itself and one of points."""
    r = np.random.default_rng(0)
    nodes: list[NodeProto] = []
    arrays: dict[str, Array] = {"s": np.array(0.5, "f"), "z": np.array(83, np.int8)}

    def convolution(x: str, name: str, inputs: int, kernel: tuple[int, int], group: int) -> str:
        taps = inputs // group * kernel[0] * kernel[1]
        scale = r.uniform(0.5, 1.5, channels) / 80 / np.sqrt(taps)
        arrays.update(
            {
                f"{name}_w": r.integers(-127, 128, (channels, inputs // group, *kernel), np.int8),
                f"{name}_ws": scale.astype(np.float32),
                f"{name}_wz": np.zeros(channels, np.int8),
                f"{name}_b": r.integers(-900, 900, channels, np.int32),
                f"{name}_s": np.array(0.6, "f"),
                f"{name}_z": np.array(-50, np.int8),
            }
        )
        before = "s", "z"
        if x != "x":
            before = f"{x}_s", f"{x}_z"
        given = [x, *before, *(f"{name}_{part}" for part in ("w", "ws", "wz", "s", "z", "b"))]
        pads = [k // 2 for k in kernel] * 2
        nodes.append(
            helper.make_node("QLinearConv", given, [name], f"net/{name}", pads=pads, group=group)
        )
        return name

    y = convolution("x", "first", 1, (3, 3), 1)
    for n in range(2):
        y = convolution(y, f"depth{n}", channels, (3, 3), channels)
        y = convolution(y, f"point{n}", channels, (1, 1), 1)
    graph = helper.make_graph(
        nodes,
        "keywords",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, height, width])],
        [helper.make_tensor_value_info(y, TensorProto.INT8, [1, channels, height, width])],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def leaky_sum() -> Graph:
    """``total' = 0.5 total + x``: a state that begins with ones, returned twofold."""
    b = GraphBuilder("leaky")
    x, total = (b.input(n, TensorType((6,), F32)) for n in ("x", "total"))
    half = b.emit(Mul(), total, b.constant(0.5))
    after = b.emit(Add(), half, x, name="after")
    twice = b.emit(Add(), after, after, name="twice")
    states = {"total": ("total", after)}
    return with_states(b.build([twice, after]), states, {"total": np.ones(6, np.float32)})


def embedded(
    model: ModelProto | Graph,
    target: str = "mcu",
    name: str = "net",
    ram: int | None = None,
    library: str = "",
    prefer: bool = True,
) -> EmbeddedModel:
    """A model, planned for a microcontroller, in so many bytes of memory, with calls of CMSIS-NN
    if that is in the folder ``library``."""
    options = Options(target=target, threads=1, ram=ram)
    if library:
        found = (("cmsis-nn", library),)
        options = replace(options, libraries=found, kernels="library" if prefer else None)
    made = target_of(options)
    assert isinstance(made, McuTarget)
    request = DeliveryRequest(name, "array", "net.onnx", "1")
    program, request = planned(model, None, request, made, options, BuildConfig())
    return embedded_model(program, request, made.model)


def written(model: EmbeddedModel, folder: Path) -> Path:
    """The folder, with the files of a model, and a program that runs it once."""
    folder.mkdir(exist_ok=True)
    (folder / MAIN).write_text(board_main(model))
    for file in embedded_files(model):
        (folder / file.name).write_bytes(file.contents)
    return folder


def run_here(folder: Path, feeds: Mapping[str, Array], name: str = "net") -> dict[str, bytes]:
    """Outputs of a model by their fields, built with checks of memory and of arithmetic, and with
    every warning an error."""
    sources = [f"{name}.c", MAIN, str(SOURCES / "host.c")]
    build = ["gcc", "-O1", *WARNINGS, *_CHECKED, f"-I{SOURCES}", *sources, "-lm", "-o", "program"]
    command(build, folder)
    for field, array in feeds.items():
        (folder / f"{field}.in").write_bytes(array.tobytes())
    command(["./program"], folder)
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.out"))}


def command(words: list[str], folder: Path) -> str:
    """What a command prints; a failure shows what it said."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout
