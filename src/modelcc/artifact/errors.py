"""What can be wrong with an artifact file."""

from __future__ import annotations

from os import PathLike

from modelcc.ir.errors import Error


class ArtifactError(Error):
    """A file that is no artifact, a damaged one, or one this version cannot use; and a remedy."""

    def __init__(self, path: str | PathLike[str], problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
