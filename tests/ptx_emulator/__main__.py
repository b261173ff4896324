"""Models on an emulated GPU, against ONNX Runtime."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from onnxruntime_errors import Judgement, judged
from ptx_emulator.driver import PtxDriver
from ptx_emulator.traffic import Traffic

from modelcc.driver import compile_model
from modelcc.options import Options, dimension
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.session import Session
from modelcc.runtime.streams.cuda_device import CudaDevice

_MEMORY = 1 << 32


def run_of(model: Path, options: Options, early: bool, traffic: Traffic | None) -> Judgement:
    """As :func:`judged`, on an emulated GPU."""
    artifact = compile_model(model, options).artifact
    device = CudaDevice(PtxDriver(early, _MEMORY, traffic), 0)
    session = Session(artifact, 1, DeviceCode(artifact, device))
    return judged(model, session, options)


def main() -> int:
    """One if any result is further off than :func:`judged` allows."""
    parser = argparse.ArgumentParser(prog="ptx_emulator", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--targets", nargs="+", default=["cuda:sm_80", "cuda:sm_90a"])
    parser.add_argument("--precisions", nargs="+", default=["f32", "f16", "bf16"])
    parser.add_argument("--dim", nargs="+", default=[], help="NAME=SIZE", type=dimension)
    parser.add_argument("--early", action="store_true", help="copies and products at once")
    parser.add_argument("--traffic", type=int, default=0, help="so many wasteful requests")
    given, wrong = parser.parse_args(), 0
    for model in given.models:
        for target in given.targets:
            for precision in given.precisions:
                start = perf_counter()
                options = Options(target=target, precision=precision, dims=tuple(given.dim))
                traffic = Traffic() if given.traffic else None
                found = run_of(model, options, given.early, traffic)
                wrong += not found.passes
                took = perf_counter() - start
                row = f"{model.stem:40} {target:12} {precision:5} {found} {took:6.1f} s"
                print(row, flush=True)
                for line in traffic.worst(given.traffic) if traffic else ():
                    print(line, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
