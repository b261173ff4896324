"""The targets there are: built in, and installed by other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import cast

from modelcc.ir.errors import ModelError
from modelcc.ir.plugin import load_plugin
from modelcc.targets.base import Target, TargetOptions
from modelcc.targets.native.c_target import c_target
from modelcc.targets.native.target import native_target

GROUP = "modelcc.targets"

MakeTarget = Callable[[TargetOptions], Target]

BUILT_IN: Mapping[str, MakeTarget] = MappingProxyType({"native": native_target, "c": c_target})


def target_names() -> tuple[str, ...]:
    """Names of all targets, built-in ones first."""
    installed = sorted(point.name for point in entry_points(group=GROUP))
    return tuple(dict.fromkeys((*BUILT_IN, *installed)))


def make_target(name: str, options: TargetOptions) -> Target:
    """The target called ``name``; :class:`ModelError` if there is none or it does not load."""
    if name in BUILT_IN:
        return BUILT_IN[name](options)
    points = entry_points(group=GROUP, name=name)
    if not points:
        close = get_close_matches(name, target_names(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(target_names())}"
        raise ModelError(f"there is no target {name!r}", (), hint)
    point = next(iter(points))
    make = load_plugin(point, object)
    if not callable(make):
        hint = "reinstall or uninstall the package that provides it"
        raise ModelError(f"{point.value} makes no target: it is no function", (), hint)
    return cast(MakeTarget, make)(options)
