"""Results of a tree for a model, as data and JSON; also written by workers of older trees."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

OPS = "op matrix"
"""The group of all samples of ops."""


@dataclass(frozen=True)
class Setting:
    """Compilation settings; an empty `cpu` is this machine's."""

    target: str
    cpu: str
    threads: int

    def __str__(self) -> str:
        return f"{self.target}/{self.cpu or 'native'}/{self.threads}"


@dataclass(frozen=True)
class Kernel:
    """A kernel: `text` is the hash of its emitted text, without names, and `size` its length.

    `flops` and `bytes` are the estimated work of a call, `plan` the text of its schedule and
    `loops` those of its function, counted.  They are None if a tree does not report them.
    """

    name: str
    nodes: tuple[str, ...]
    launches: int
    text: str
    size: int
    flops: int | None = None
    bytes: int | None = None
    plan: str | None = None
    loops: str | None = None

    @property
    def base(self) -> str:
        """The name without its running number."""
        return re.sub(r"^[a-z]+\d+_", "", self.name)


@dataclass(frozen=True)
class Outcome:
    """A case for a setting: its kernels, the bytes of its arena and constants (None: not reported
    by the tree), or the error.

    `group` is its line in the summary.
    """

    group: str
    case: str
    setting: Setting
    kernels: tuple[Kernel, ...] = ()
    arena: str = ""
    constants: int | None = None
    failed: str = ""


@dataclass(frozen=True)
class Job:
    """The work of one process: compile cases for each of `settings`, with the modules in `sources`,
    which are those of `tree`, `before` or `now`.

    `kind` is `file` (`what`: a path), `small` (names by comma) or `ops` (`2/16`: a sixteenth of
    the samples).  Texts are stored by hash in the folder `texts`, unless that is empty.
    """

    tree: str
    sources: str
    kind: str
    what: str
    settings: tuple[Setting, ...]
    texts: str = ""

    @property
    def label(self) -> str:
        """The display name; of a file, the name of its case."""
        match self.kind:
            case "ops":
                return f"{OPS} {self.what}"
            case "small":
                return "small models"
            case _:
                return self.what.rsplit("/", 1)[-1].removesuffix(".onnx")

    def group(self, case: str) -> str:
        """The group of a case."""
        return OPS if self.kind == "ops" else case


def to_json(record: Outcome | Job) -> str:
    """One line."""
    return json.dumps(asdict(record))


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    """The inverse of :func:`to_json`."""
    kernels = tuple(_kernel(entry) for entry in data["kernels"])
    return replace(Outcome(**data), setting=Setting(**data["setting"]), kernels=kernels)


def job_from(text: str) -> Job:
    """The inverse of :func:`to_json`."""
    data: dict[str, Any] = json.loads(text)
    settings = tuple(Setting(**entry) for entry in data.pop("settings"))
    return Job(**data, settings=settings)


def _kernel(data: Mapping[str, Any]) -> Kernel:
    return replace(Kernel(**data), nodes=tuple(data["nodes"]))
