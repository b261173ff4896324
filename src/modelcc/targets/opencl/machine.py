"""Which machine kernels of OpenCL are scheduled for."""

from __future__ import annotations

from dataclasses import replace

from modelcc.runtime.devices.opencl_facts import OpenclFacts
from modelcc.targets.gpu.machine import GPUS, INTEGRATED, PROCESSOR, GpuModel

LEAST_SHARED, LEAST_THREADS = 32 << 10, 256
"""Limits of a group that GPUs with OpenCL meet: the least of shared memory in the full profile
(OpenCL 1.2, table 4.3), and threads of AMD's and Intel's drivers."""


def model_of(name: str, facts: OpenclFacts | None) -> GpuModel:
    """The machine of the table with this ``name``, or, if it is empty, the one most like a device
    (a processor without ``facts``), with the device's memory and limits of a group."""
    model = GPUS[name] if name else _most_like(facts)
    if model.virtual:
        return model
    shared, threads = LEAST_SHARED, LEAST_THREADS
    if facts is not None and facts.gpu:
        shared, threads = facts.group_shared_bytes, facts.group_threads
        model = replace(model, memory_bytes=facts.memory_bytes)
    return replace(
        model,
        group_threads=min(model.group_threads, threads),
        group_shared_bytes=min(model.group_shared_bytes, shared),
    )


def _most_like(facts: OpenclFacts | None) -> GpuModel:
    """NVIDIA's compute units are those of the table, so that their number scales the rates; other
    vendors count theirs differently."""
    if facts is None or not facts.gpu:
        return PROCESSOR
    vendor = facts.vendor.lower()
    if facts.unified:
        return INTEGRATED
    if "nvidia" in vendor:
        card = GPUS["rtx30"]
        share = facts.units / card.units
        rates = {"flops": card.flops * share, "bandwidth": card.bandwidth * share}
        return replace(card, units=facts.units, **rates)
    if "amd" in vendor or "advanced micro devices" in vendor:
        return GPUS["rx7900"]
    return INTEGRATED
