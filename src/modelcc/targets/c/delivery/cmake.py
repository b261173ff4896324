"""``CMakeLists.txt``: the model as a library, and the example."""

from __future__ import annotations

from modelcc.ir.program import libraries
from modelcc.targets.c.delivery.facts import DeliveredModel
from modelcc.targets.c.delivery.filling import filled
from modelcc.targets.c.delivery.header import LANGUAGE, flags
from modelcc.targets.c.toolchain import FUSED

_WARNINGS = "-Wno-psabi"


def cmake(facts: DeliveredModel) -> str:
    """Text of the file."""
    name, macro = facts.name, facts.macro
    sources = [f"{name}.c"]
    sources += [f"{name}_weights.c"] if facts.weights else []
    sources += [f"{name}_pool.c"] if facts.has_pool else []
    form = facts.request.weights if facts.weights else ""
    return filled(
        "CMakeLists.txt",
        name=name,
        language=LANGUAGE,
        sources=" ".join(sources),
        options=f"{' '.join(flags(facts))}\n    {' '.join((*FUSED, _WARNINGS))}",
        libraries=" ".join(("m", *libraries(facts.program))),
        threads=filled("threads.cmake", name=name).rstrip() if facts.has_pool else "",
        incbin=filled("incbin.cmake", name=name, NAME=macro) if form == "incbin" else "",
        weights=filled("weights.cmake", name=name, NAME=macro).rstrip() if form == "bin" else "",
    )
