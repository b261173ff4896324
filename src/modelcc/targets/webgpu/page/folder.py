"""All files of a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from string import Template

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.index import evaluate
from modelcc.ir.program import Program
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.webgpu.emitter import BINDING_BYTES
from modelcc.targets.webgpu.page.places import NOWHERE, PageMemory
from modelcc.targets.webgpu.page.steps import DEVICE, Json, PageSteps, PageWriter
from modelcc.targets.webgpu.wasm import wasm_module

_BUFFER = 256 << 20
"""Bytes of one buffer that every implementation gives."""


def page_files(program: Program, title: str, piece_bytes: int) -> tuple[File, ...]:
    """The folder of ``program``, whose memory is planned and whose kernels see ``piece_bytes`` of a
    tensor in one piece: open it by any server of files.

    :class:`ModelError` if it has named dimensions, or steps that hang on data.
    """
    open_ = [name for name in program.dims if name not in program.read_sizes]
    if open_:
        named = ", ".join(open_)
        hint = " ".join(f"--dim {name}=N" for name in open_)
        raise ModelError(f"a page is for fixed sizes, and {named} may be any", (), hint)
    writer = PageWriter(program, piece_bytes)
    written = writer.write()
    model = _model(program, title, written, writer)
    shaders = "".join(f"// ---- {s.name}\n{s.text}" for s in written.kernels.values())
    host = [File("host.wasm", wasm_module(list(written.host.values())))] if written.host else []
    return (
        File("index.html", Template(_text("index.html")).substitute(title=escape(title)).encode()),
        File("page.js", _text("page.js").encode()),
        File("modelcc.js", _text("modelcc.js").encode()),
        File("model.json", json.dumps(model, separators=(",", ":")).encode()),
        File("kernels.wgsl", shaders.encode()),
        File("weights.bin", _weights(program, written.places).tobytes()),
        *host,
    )


def _text(name: str) -> str:
    return files("modelcc.targets.webgpu.page").joinpath(name).read_text("utf-8")


def _model(program: Program, title: str, written: PageSteps, writer: PageWriter) -> Json:
    places = written.places
    inputs = [_tensor(program, places, name, DEVICE) for name in program.inputs]
    outputs = [_tensor(program, places, name, writer.side(name)) for name in program.outputs]
    kernels = [
        {
            "name": shader.name,
            "buffers": shader.buffers,
            "sizes": len(shader.sizes),
        }
        for shader in written.kernels.values()
    ]
    host = {"bytes": places.host_bytes} if written.host else None
    return {
        "name": title,
        "arena": places.arena,
        "buffers": places.buffers,
        "limits": _limits(written),
        "faults": places.buffers[0],
        "checks": written.checks,
        "inputs": inputs,
        "outputs": outputs,
        "weights": [_place(places, name, DEVICE) for name in _used(program, places)],
        "kernels": kernels,
        "host": host,
        "steps": written.steps,
    }


def _tensor(program: Program, places: PageMemory, name: str, side: str) -> Json:
    type_ = program.types[name]
    shape = [evaluate(extent, {}) for extent in type_.shape]
    at = _place(places, name, side)
    return {"name": name, "dtype": type_.dtype.storage.name, "shape": shape, "at": at}


def _place(places: PageMemory, name: str, side: str) -> list[int]:
    """Buffer, offset, bytes and the address of the host; -1 for where it is not."""
    room, address = places.known(name)
    if room is None or (side != DEVICE and address != NOWHERE):
        return [NOWHERE, 0, places.bytes(name), address]
    return [room.buffer, room.offset, places.bytes(name), address]


def _used(program: Program, places: PageMemory) -> Iterator[str]:
    for name in program.constants:
        if places.known(name) != (None, NOWHERE):
            yield name


def _weights(program: Program, places: PageMemory) -> NDArray[np.uint8]:
    """Constants one after the other, each filled up to whole words."""
    used = list(_used(program, places))
    sizes = [-(-places.bytes(name) // 4) * 4 for name in used]
    sizes = [max(4, size) for size in sizes]
    whole = np.zeros(sum(sizes), np.uint8)
    start = 0
    for name, size in zip(used, sizes, strict=True):
        constant: Constant = program.constants[name]
        constant.write(whole[start : start + places.bytes(name)])
        start += size
    return whole


def _limits(written: PageSteps) -> dict[str, int]:
    """What the page has to ask a device for, beyond what all give."""
    bound = (at[2] for step in written.steps if "kernel" in step for at in step["at"])
    found = {
        "maxStorageBufferBindingSize": (max(bound, default=0), BINDING_BYTES),
        "maxBufferSize": (max(written.places.buffers), _BUFFER),
    }
    return {name: size for name, (size, usual) in found.items() if size > usual}
