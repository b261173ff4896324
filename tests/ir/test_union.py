import random

import pytest

from modelcc.ir.union import Union


@pytest.mark.parametrize("seed", range(20))
def test_length_is_that_of_the_set_of_points(seed: int) -> None:
    rng = random.Random(seed)
    all_of = [tuple(sorted(rng.choices(range(40), k=2))) for _ in range(rng.randint(0, 12))]
    union = Union(end for interval in all_of for end in interval)
    present: list[tuple[int, ...]] = []
    for start, end in all_of * 2:
        if present and rng.random() < 0.4:
            union.remove(*present.pop(rng.randrange(len(present))))
        union.add(start, end)
        present.append((start, end))
        assert union.length == len({p for s, e in present for p in range(s, e)})


def test_nothing_is_covered_at_first() -> None:
    assert Union(()).length == Union((3, 7)).length == 0
