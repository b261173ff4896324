"""Models on an emulated GPU of AMD's, against ONNX Runtime."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from amd_emulator.models import emulated_session
from onnxruntime_errors import judged

from modelcc.options import Options, dimension


def main() -> int:
    """One if any result is further off than :func:`judged` allows."""
    parser = argparse.ArgumentParser(prog="amd_emulator", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--chips", nargs="+", default=["gfx942"])
    parser.add_argument("--precisions", nargs="+", default=["f32", "f16", "bf16"])
    parser.add_argument("--dim", nargs="+", default=[], help="NAME=SIZE", type=dimension)
    parser.add_argument("--backwards", action="store_true", help="the last threads first")
    given, wrong = parser.parse_args(), 0
    for model in given.models:
        for chip in given.chips:
            for precision in given.precisions:
                start = perf_counter()
                options = Options(precision=precision, dims=tuple(given.dim))
                session = emulated_session(model, chip, options, given.backwards)
                found = judged(model, session, options)
                wrong += not found.passes
                took = perf_counter() - start
                row = f"{model.stem:40} {chip:8} {precision:5} {found} {took:6.1f} s"
                print(row, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
