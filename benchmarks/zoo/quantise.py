"""Quantised variants of the zoo's models, by onnxruntime.quantization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.zoo.__main__ import FOLDER
from benchmarks.zoo.catalogue import find
from benchmarks.zoo.export import describe, update_index
from benchmarks.zoo.records import Model

CALIBRATION_RUNS = 4


class RandomFeeds(CalibrationDataReader):
    """The model's random inputs, each with another seed."""

    def __init__(self, model: Model, runs: int) -> None:
        self._feeds: Iterator[dict[str, Any]] = (dict(model.feeds(seed, 1)) for seed in range(runs))

    def get_next(self) -> dict[str, Any] | None:
        """The inputs of the next run, None after the last."""
        return next(self._feeds, None)


def static(model: Model, source: Path, target: Path, signed: bool, per_channel: bool) -> None:
    """QDQ form with i8 weights; activations are i8 if ``signed``, else u8."""
    with TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(target),
            RandomFeeds(model, CALIBRATION_RUNS),
            per_channel=per_channel,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Of the models.")
@click.option("--activations", type=click.Choice(["u8", "i8"]), default="i8", show_default=True)
@click.option("--per-channel", is_flag=True, help="A scale for each output channel.")
@click.option("--dynamic", is_flag=True, help="Activations are quantised while the model runs.")
def main(
    names: tuple[str, ...], folder: Path, activations: str, per_channel: bool, dynamic: bool
) -> None:
    """Quantise models that `python -m benchmarks.zoo` has made; names are those of the zoo."""
    for name in names:
        model = find(name)
        source = folder / f"{name}.onnx"
        target = folder / f"{name}_{'dynamic_int8' if dynamic else 'qdq'}.onnx"
        if dynamic:
            quantize_dynamic(str(source), str(target))
        else:
            static(model, source, target, activations == "i8", per_channel)
        update_index(folder, target.stem, describe(model, target, 1))
        click.echo(target)


if __name__ == "__main__":
    main()
