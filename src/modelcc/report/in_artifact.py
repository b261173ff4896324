"""The report inside an artifact."""

from __future__ import annotations

from dataclasses import replace

from modelcc.artifact.file import Artifact
from modelcc.report.report import Report, report_from_json

REPORT = "report.json"
"""Path of the report in an artifact's sources."""


def report_in(artifact: Artifact) -> Report | None:
    """The report in an artifact."""
    text = artifact.sources.get(REPORT)
    if text is None:
        return None
    interface = artifact.manifest.interface
    steps = () if interface is None else interface.steps
    report = report_from_json(text)
    names = {state.input: name for name, state in artifact.manifest.states.items()}
    states = tuple(replace(row, name=names.get(row.name, row.name)) for row in report.states)
    return replace(report, host_steps=tuple(map(str, steps)), states=states)


def with_report(artifact: Artifact, report: Report) -> Artifact:
    """``artifact`` with another report."""
    return replace(artifact, sources={**artifact.sources, REPORT: report.to_json()})
