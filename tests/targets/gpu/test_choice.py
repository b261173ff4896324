"""What schedules are expected to take is no less than what their functions do."""

from __future__ import annotations

import pytest
from fused_kernels import program_of

from modelcc.ir.tensor import Kernel
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupAttention
from modelcc.targets.gpu.attention_choice import BLOCKS, attention_bytes
from modelcc.targets.gpu.attention_parts import find_attention
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import lower_groups
from modelcc.targets.llvm.groups import shared_bytes


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
def test_attention_takes_the_shared_memory_that_is_planned(blocks: GroupAttention) -> None:
    program = program_of("attention")
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = GroupKernel(canonical(item, program.types, frozenset(), program.dims)[0], "k")
    planned = attention_bytes(blocks, find_attention(kernel))
    taken = shared_bytes(lower_groups(kernel, blocks))
    assert taken <= planned <= 1.1 * taken
