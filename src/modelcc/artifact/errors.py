"""Errors of artifact files."""

from __future__ import annotations

from os import PathLike

from modelcc.ir.errors import Error


class ArtifactError(Error):
    """A file that is no artifact, is damaged or unusable by this version; with a remedy."""

    def __init__(self, path: str | PathLike[str], problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
