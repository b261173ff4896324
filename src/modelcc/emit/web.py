"""A model as a page for browsers."""

from __future__ import annotations

from modelcc.emit.delivery import Delivery, planned
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.pipeline import Observer
from modelcc.targets.base import BuildConfig, Target
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.webgpu.page.folder import page_files
from modelcc.targets.webgpu.target import WebgpuTarget, page_target


def deliver_page(
    source: object,
    level: str | None,
    name: str,
    target: Target,
    options: Options,
    config: BuildConfig,
    observer: Observer | None = None,
) -> Delivery:
    """The folder for ``source`` (a model called ``name``, or a program of ``level``).

    :class:`ModelError` for unspecified sizes and data-dependent steps.
    """
    if not isinstance(target, WebgpuTarget):
        hint = "--target webgpu"
        raise ModelError(f"target {target.name!r} has no kernels for browsers", (), hint)
    page = page_target(target)
    program, _ = planned(source, level, DeliveryRequest(name), page, options, config, observer)
    weights = sum(constant.nbytes for constant in program.constants.values())
    return Delivery(
        page_files(program, name, page.gpu.binding_bytes), program.placed.arena, weights, 0
    )
