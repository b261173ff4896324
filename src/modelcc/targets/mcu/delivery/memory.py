"""Memory of programs that run a model: the arena, and tensors in and outside of it."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.targets.c.delivery.facts import Tensor
from modelcc.targets.mcu.delivery.header import macro_of
from modelcc.targets.mcu.delivery.model import EmbeddedModel


def declarations(model: EmbeddedModel) -> Iterator[str]:
    """The arena, aligned for its contents, and the tensors outside of it."""
    yield f"static uint64_t arena[{max(1, model.arena // 8)}];"
    for tensor in model.facts.tensors:
        if tensor.field not in model.room:
            yield f"static {tensor.element} {tensor.field}[{macro_of(model, tensor)}_ELEMENTS];"


def placed(model: EmbeddedModel, tensor: Tensor) -> str:
    """A pointer to a tensor in the arena."""
    place = f"(uint8_t *)arena + {macro_of(model, tensor)}_ARENA_OFFSET"
    return f"{tensor.element} *{tensor.field} = (void *)({place});"
