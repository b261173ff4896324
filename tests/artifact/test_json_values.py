"""Values of JSON are of the kinds that are asked for, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from modelcc.artifact.json_values import (
    list_of,
    number_of,
    object_of,
    parsed_object,
    whole_number_of,
)


def test_values_of_the_right_kind_are_taken() -> None:
    text = json.dumps({"shape": [2, 3], "rate": 0.5, "of": {"a": 1}})
    read = parsed_object(text)
    assert list_of(read["shape"], whole_number_of) == (2, 3)
    assert (number_of(read["rate"]), number_of(7)) == (0.5, 7)
    assert object_of(read["of"]) == {"a": 1}


WRONG: dict[Callable[[object], object], tuple[object, ...]] = {
    object_of: ("text", 1, None, [1], True),
    whole_number_of: ("1", 1.0, None, [1], {}, True),
    number_of: ("1.5", None, [1.0], {}, False),
    lambda value: list_of(value, str): ("text", 1, None, {"a": 1}),
    lambda value: list_of(value, whole_number_of): ([1, "2"], [None]),
}


@pytest.mark.parametrize("read", WRONG)
def test_values_of_another_kind_are_refused(read: Callable[[object], object]) -> None:
    for value in WRONG[read]:
        with pytest.raises(TypeError, match="in place of"):
            read(json.loads(json.dumps(value)))


def test_a_text_that_is_no_object_is_refused() -> None:
    with pytest.raises(TypeError, match="list in place of an object"):
        parsed_object("[]")
    with pytest.raises(ValueError, match="Expecting"):
        parsed_object("{")
