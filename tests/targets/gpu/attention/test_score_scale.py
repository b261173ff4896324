"""Numbers that multiply all scores of a row."""

from __future__ import annotations

from math import isclose

import pytest
from attention_programs import attention
from cuda_products import kernel_of

from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import Number
from modelcc.targets.gpu.attention.attention_parts import find_attention
from modelcc.targets.gpu.attention.score_scale import unscaled

SCALES = {
    "{}": 1.0,
    "{} * 0.25": 0.25,
    "{} / 4.0": 0.25,
    "({} * 0.5) * 0.25": 0.125,
    "select(ge(index(i - j):i64, 0), {} * 0.25, -inf)": 0.25,
    "{} * -0.25": 1.0,
    "{} * 0.25 + %b[i, j]": 1.0,
    "({} * 0.25 + %b[i, j]) * 0.5": 1.0,
    "select(ge(index(i - j):i64, 0), {} * 0.25, 0.0)": 1.0,
}


@pytest.mark.parametrize("score", SCALES)
def test_what_multiplies_all_scores_is_taken_out(score: str) -> None:
    parts = find_attention(kernel_of(attention(1, 1, 64, 64, 16, 16, "f16", score, "f16")))
    assert parts.shifted is not None
    scores, scale = unscaled(parts.scores, parts.shifted)
    assert isclose(scale, SCALES[score])
    assert scores[0] == parts.scores[0]
    if scale == 1.0:
        assert scores == parts.scores
        return
    numbers = [e.value for e in walk(scores[-1].body) if isinstance(e, Number)]
    assert scale not in numbers
