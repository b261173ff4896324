"""``modelcc check`` for devices: what runs there, what on the processor, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from modelcc.cli.console import output_console, print_json, print_pairs
from modelcc.device_fit import DeviceFit, device_fit
from modelcc.options import Options
from modelcc.report.formats import byte_text
from modelcc.report.tables import use_table
from modelcc.targets.base import BuildConfig
from modelcc.targets.gpu.device_target import DeviceTarget

DOES_NOT_FIT = 1


def check_device(
    model: Path,
    target: DeviceTarget,
    options: Options,
    config: BuildConfig,
    memory: int | None,
    as_json: bool,
) -> int:
    """Print what ``model`` takes of the device of ``target``; the exit code."""
    found = device_fit(model, target, options, config, memory)
    if as_json:
        print_json(_facts(found, model))
    else:
        print_pairs(_rows(found, model, target))
        if found.report.device and found.report.device.uses:
            output_console().print(use_table(found.report.device))
    return DOES_NOT_FIT if found.shortage else 0


def _facts(found: DeviceFit, model: Path) -> dict[str, object]:
    device = found.report.device
    return {
        "model": model.name,
        "target": found.report.target,
        "fits": None if found.memory is None else found.shortage is None,
        "sizes": dict(found.report.sizes),
        "needed": found.needed,
        "parts": dict(found.parts),
        "memory": found.memory,
        "shortage": found.shortage and asdict(found.shortage),
        "device": device and asdict(device),
        "notes": list(found.report.notes),
    }


def _rows(found: DeviceFit, model: Path, target: DeviceTarget) -> Iterator[tuple[str, str]]:
    report = found.report
    yield "model", f"{model.name} on {target.description}"
    if report.sizes:
        yield "at", ", ".join(f"{name}={size}" for name, size in report.sizes.items())
    if report.device:
        yield "device", report.device.work
        yield "moved", report.device.moved
    for note in report.notes:
        yield "note", note
    yield "memory", _compared(found)
    for name, size in found.parts.items():
        yield f"  {name}", byte_text(size)
    if found.shortage:
        yield "lacks", byte_text(found.shortage.excess)
        for reason in found.shortage.reasons:
            yield "  because", reason
        for change in found.shortage.changes:
            yield "  what helps", change


def _compared(found: DeviceFit) -> str:
    needed = byte_text(found.needed)
    if found.memory is None:
        return f"{needed}; how much there is, is not known ({found.source}): --ram tells"
    fits = "too many" if found.shortage else "fits"
    return f"{needed} of {byte_text(found.memory)} ({found.source}): {fits}"
