"""What kernels of models take as machine code: ``python -m benchmarks.gpu.code MODEL.onnx …``, or
``MODEL.mcc …`` of what was compiled before.

For each model, architecture and precision: kernels that spill, that reach less occupancy than their
schedule planned, and that multiply by tensor cores without copies beside.  Ends with 1 if there is
any.  Needs ``ptxas`` and ``nvdisasm``, and no GPU.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import onnx

from benchmarks.gpu.weights import grown
from modelcc.artifact.file import Artifact, read_artifact
from modelcc.driver import compile_model
from modelcc.options import Options
from modelcc.report.in_artifact import report_in
from modelcc.runtime.devices.device_program import CODE
from modelcc.runtime.streams.cuda_code import machine_code
from modelcc.targets.cuda.tools import disassemble
from modelcc.targets.kernel_use import GroupUse

SEEDED, COMPILED = ".seeded.onnx", ".mcc"
COPIES = {"HGMMA": "UTMALDG", "QGMMA": "UTMALDG", "HMMA": "LDGSTS"}
"""Instructions that copy operands of tensor-core products to shared memory."""

_KERNEL = re.compile(r"\n\.text\.(\S+?):")
_WORDS = re.compile(r"\b([A-Z]+)[.\s]")


@dataclass(frozen=True)
class Found:
    """A kernel and the bars that it misses."""

    use: GroupUse
    misses: tuple[str, ...]
    matrix: str


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(prog="benchmarks.gpu.code", description=__doc__)
    made.add_argument("models", type=Path, nargs="+", help="ONNX, also without weights, or .mcc")
    made.add_argument("--targets", nargs="+", default=["cuda:sm_80", "cuda:sm_90a"])
    made.add_argument("--precisions", nargs="+", default=["f32", "f16", "bf16"])
    made.add_argument("--batch", type=int, default=1, help="of all named dimensions")
    made.add_argument("--all", action="store_true", help="list kernels that miss no bar, too")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if a kernel misses a bar."""
    given = parser().parse_args(arguments)
    missing = 0
    for path in (p for p in given.models if p.suffix == COMPILED):
        missing += print_model(path.stem, list(kernels_of(read_artifact(path))), given.all)
    for path in (p for p in given.models if p.suffix != COMPILED):
        for target in given.targets:
            for precision in given.precisions:
                options = Options(target=target, precision=precision)
                begin = perf_counter()
                kernels = list(check(_model(path), options, given.batch))
                seconds = perf_counter() - begin
                missing += print_model(f"{path.stem} {precision} {target}", kernels, given.all)
                print(f"  {seconds:.0f} s", flush=True)
    return int(missing > 0)


def _model(path: Path) -> onnx.ModelProto:
    """With weights, from the file or generated from a seed."""
    model = onnx.load(str(path))
    return grown(model) if path.name.endswith(SEEDED) else model


def check(model: onnx.ModelProto, options: Options, batch: int) -> Iterator[Found]:
    """Each kernel of a compiled model."""
    shapes = (value.type.tensor_type.shape for value in model.graph.input)
    dims = {d.dim_param: batch for shape in shapes for d in shape.dim if d.dim_param}
    yield from kernels_of(compile_model(model, replace(options, dims=tuple(dims.items()))).artifact)


def kernels_of(artifact: Artifact) -> Iterator[Found]:
    """Each kernel of an artifact for an NVIDIA GPU."""
    report = report_in(artifact)
    assert report is not None and report.device is not None
    texts = code_of(disassemble(machine_code(artifact.objects[CODE])))
    for use in report.device.uses:
        yield found(use, texts[use.function])


def code_of(sass: str) -> Mapping[str, str]:
    """The machine code of each kernel."""
    _, *parts = _KERNEL.split(sass)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def found(use: GroupUse, code: str) -> Found:
    """Resources of a kernel, and the bars it misses."""
    words = set(_WORDS.findall(code))
    matrix = next((word for word in COPIES if word in words), "")
    misses: list[str] = []
    if use.local:
        misses.append(f"{use.local} bytes spilled or in arrays")
    if use.occupancy is not None and use.occupancy < use.planned:
        misses.append(f"occupancy {use.occupancy:.0%} of {use.planned:.0%}")
    if matrix and COPIES[matrix] not in words:
        misses.append(f"{matrix} without {COPIES[matrix]}")
    return Found(use, tuple(misses), matrix)


def print_model(name: str, kernels: Sequence[Found], everything: bool) -> int:
    """Prints a line for the model, and one for each kernel that misses a bar; returns their
    number."""
    by = {word: sum(k.matrix == word for k in kernels) for word in COPIES}
    used = ", ".join(f"{count} by {word}" for word, count in by.items() if count)
    missing = [kernel for kernel in kernels if kernel.misses]
    print(f"{name}: {len(kernels)} kernels{', ' if used else ''}{used}; {len(missing)} miss a bar")
    for kernel in kernels if everything else missing:
        use = kernel.use
        taken = f"{use.threads} threads, {use.registers} registers, {use.shared} bytes shared"
        print(f"  {use.function}: {taken}; {'; '.join(kernel.misses) or 'as planned'}")
    return len(missing)


if __name__ == "__main__":
    raise SystemExit(main())
