"""``NAME_pool.h`` and ``NAME_pool.c``: the runtime's thread pool under names of the model's."""

from __future__ import annotations

from importlib.resources import files


def pool_files(name: str) -> dict[str, str]:
    """Texts by file name."""
    return {f"{name}_pool.{kind}": _renamed(_text(kind), name) for kind in ("h", "c")}


def _text(kind: str) -> str:
    return files("modelcc.runtime").joinpath(f"pool.{kind}").read_text("utf-8")


def _renamed(text: str, name: str) -> str:
    text = text.replace("pool.h", f"{name}_pool.h").replace("mcc_", f"{name}_")
    return text.replace("MCC_", f"{name.upper()}_")
