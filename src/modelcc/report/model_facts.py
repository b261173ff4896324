"""Contents of a model's file, without compiling it or running any of its code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from modelcc.artifact.constants import block_size
from modelcc.artifact.inspection import inspect_artifact
from modelcc.frontends.choice import ONNX, frontend_of
from modelcc.frontends.onnx.facts import onnx_facts
from modelcc.ir.errors import ModelError


def facts_of(path: Path) -> dict[str, object]:
    """The facts of an .onnx file, or of an artifact (by its suffix), as JSON values.

    :class:`~modelcc.ir.errors.Error` or ``OSError`` if the file is neither.
    """
    if path.suffix == ".mcc":
        return _artifact_facts(path)
    if frontend_of(path) is not ONNX:
        hint = f"look at its graph: modelcc compile {path} --emit graph"
        raise ModelError("only ONNX models and artifacts are inspected", (str(path),), hint)
    return onnx_facts(path)


def _artifact_facts(path: Path) -> dict[str, object]:
    found = inspect_artifact(path)
    manifest = found.manifest
    by_type: Counter[str] = Counter()
    for spec in manifest.constants:
        by_type[spec.dtype.name] += spec.size
    ranked = sorted(manifest.constants, key=lambda spec: -spec.size)
    machine = manifest.machine
    specs = {spec.name: spec for spec in manifest.inputs}
    return {
        "file": str(path),
        "kind": "artifact",
        "bytes": found.bytes,
        "sha256": found.digest,
        "name": manifest.name,
        "inputs": {spec.name: str(spec) for spec in manifest.inputs},
        "outputs": {spec.name: str(spec) for spec in manifest.outputs},
        "states": {name: str(specs[state.input]) for name, state in manifest.states.items()},
        "dims": {dim.name: [dim.low, dim.high] for dim in manifest.dims},
        "machine": {
            "triple": machine.triple, "cpu": machine.cpu, "features": list(machine.features),
        },
        "arena": manifest.arena if isinstance(manifest.arena, int) else str(manifest.arena),
        "weights": {
            "bytes": block_size(manifest.constants),
            "by_type": dict(by_type.most_common()),
            "largest": [
                {"name": s.name, "type": f"{s.dtype}{list(s.shape)}", "bytes": s.size}
                for s in ranked[:10]
            ],
        },
        "checks": list(map(str, manifest.checks)),
        "libraries": {
            spec.name: {"version": spec.version, "files": list(spec.files)}
            for spec in manifest.libraries
        },
        "versions": dict(manifest.versions),
        "members": [
            {"name": part.name, "bytes": part.bytes, "sha256": part.sha256}
            for part in found.members
        ],
    }  # fmt: skip
