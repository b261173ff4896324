"""A model as bytecode for microcontrollers, and the interpreter with the kernels for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from modelcc.emit.delivery import Delivery, planned
from modelcc.emit.emission import BYTECODE, Emission, suffix_of
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.pipeline import Observer
from modelcc.targets.base import BuildConfig, Target
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.mcu.delivery.model import embedded_model
from modelcc.targets.mcu.target import McuTarget
from modelcc.targets.vm.encode import Encoded, encode
from modelcc.targets.vm.kernel import VmKernel, merged, read_kernels
from modelcc.targets.vm.library import interpreter_files


def emit_bytecode(
    source: object,
    level: str | None,
    name: str,
    kernels: Sequence[Path],
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None = None,
) -> Emission:
    """``source`` (a model called ``name``, or a program of ``level``) as bytecode.

    :class:`ModelError` for unsupported steps, and, given lists of a firmware's ``kernels``, for
    those without a kernel there.
    """
    encoded = _encoded(source, level, name, target, options, config, observer)
    if kernels:
        _check_known(encoded, name, _known(kernels))
    return Emission(BYTECODE, encoded.data, suffix_of(BYTECODE))


def deliver_interpreter(
    source: object,
    level: str | None,
    name: str,
    kernels: Sequence[Path],
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None = None,
) -> Delivery:
    """The interpreter in C with the kernels that ``source`` needs, and those in the lists."""
    encoded = _encoded(source, level, name, target, options, config, observer)
    files = interpreter_files(merged(encoded.kernels, _known(kernels)), target.name)
    return Delivery(files, encoded.arena, len(encoded.data), 0)


def _encoded(
    source: object,
    level: str | None,
    name: str,
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None,
) -> Encoded:
    if not isinstance(target, McuTarget):
        hint = "choose a microcontroller: --target cortex-m4"
        raise ModelError(f"target {target.name!r} has no bytecode", (), hint)
    request = DeliveryRequest(name)
    program, request = planned(source, level, request, target, options, config, observer)
    return encode(embedded_model(program, request, target.model))


def _known(paths: Sequence[Path]) -> tuple[VmKernel, ...]:
    return merged(*(read_kernels(path.read_text(), str(path)) for path in paths))


def _check_known(encoded: Encoded, name: str, known: Sequence[VmKernel]) -> None:
    there = {kernel.digest for kernel in known}
    missing = [kernel.digest for kernel in encoded.kernels if kernel.digest not in there]
    if missing:
        nodes = dict.fromkeys(node for digest in missing for node in encoded.sources[digest])
        raise ModelError(
            f"the firmware has no kernel {', '.join(missing)}, which {name} needs for "
            f"{'; '.join(nodes)}",
            (),
            "add it to the firmware: --emit interpreter with the same --firmware",
        )
