"""The harness of the standard's suite, on a few cases and on ones that go wrong on purpose."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import expected
from conformance.cases import Case, Loaded, case_of, collect
from conformance.check import Outcome, attempt
from conformance.report import counts, to_json, to_markdown
from conformance.workers import outcomes
from tests.frontends.onnx.standard_cases import cases_of


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    made = (case for module in ("add", "tile") for case in cases_of(module))
    return {case.name: case for case in map(case_of, made)}


def broken(name: str, load: Callable[[], Loaded]) -> Case:
    return Case(name, "node", load)


def crash() -> Loaded:
    os._exit(3)


def hang() -> Loaded:
    time.sleep(60)
    raise AssertionError


def states(found: list[Outcome]) -> dict[str, str]:
    return {outcome.name: outcome.state for outcome in found}


def test_every_kind_of_case_is_found_and_expected_failures_are_among_them() -> None:
    cases = {case.name: case for case in collect()}
    assert {case.kind for case in cases.values()} == {
        *("node", "real", "simple", "pytorch-converted", "pytorch-operator")
    }
    assert len(cases) > 1900
    assert [name for name in expected.read() if name not in cases] == []


def test_cases_are_compiled_or_specialised(cases: dict[str, Case]) -> None:
    found = list(outcomes([cases["add"], cases["tile"]], 1, 600))
    assert states(found)["add"] == "compiled"
    assert "failed" not in states(found).values()


def test_wrong_results_are_failures(cases: dict[str, Case]) -> None:
    def wrong() -> Loaded:
        loaded = cases["add"].load()
        (inputs, outputs) = loaded.data_sets[0]
        return Loaded(loaded.model, [(inputs, [outputs[0] + 1])])

    (outcome,) = outcomes([broken("wrong", wrong)], 1, 600)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("wrong result")


def test_cases_are_of_the_target_asked_for(cases: dict[str, Case]) -> None:
    (outcome,) = outcomes([cases["add"]], jobs=1, seconds=60, target="nowhere")
    assert outcome.state == "failed" and "no target 'nowhere'" in outcome.reason


def test_a_crash_costs_one_case(cases: dict[str, Case]) -> None:
    found = {o.name: o for o in outcomes([broken("crash", crash), cases["add"]], 1, 600)}
    assert states(list(found.values())) == {"crash": "failed", "add": "compiled"}
    assert "exit code 3" in found["crash"].reason


def test_a_hang_costs_one_case() -> None:
    (outcome,) = outcomes([broken("hang", hang)], 1, 0.5)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("timeout")


def test_cases_that_need_a_missing_package_are_skipped(
    cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.check.OPTIONAL", {"Add": "no_such_package"})
    outcome = attempt(cases["add"])
    assert (outcome.state, outcome.reason) == ("skipped", "needs no_such_package")
    assert expected.unexpected([outcome], {"add": "some reason"}) == []
    assert "1 skipped: needs no_such_package." in to_markdown([outcome], "here", {})


def test_stale_and_new_failures_are_told() -> None:
    found = [Outcome("a", "node", "compiled"), Outcome("b", "node", "failed", "why")]
    assert expected.unexpected(found, {"b": "known"}) == []
    first, second = expected.unexpected(found, {"a": "known"})
    assert first.startswith("a passes")
    assert second == "b failed: why"
    assert expected.without_passed(found, {"a": "known", "b": "known"}) == {"b": "known"}


def test_the_table_reads_back(tmp_path: Path) -> None:
    table = expected.read()
    expected.write(table, tmp_path / "table.toml")
    assert expected.read(tmp_path / "table.toml") == table
    assert (tmp_path / "table.toml").read_text("utf-8") == expected.FILE.read_text("utf-8")


def test_reports_count_alike() -> None:
    found = [Outcome("a", "node", "compiled"), Outcome("b", "node", "failed", "x 3 y")]
    assert counts(found) == {"compiled": 1, "specialised": 0, "skipped": 0, "failed": 1}
    assert json.loads(to_json(found, "here"))["failed"] == 1
    text = to_markdown(found, "here", {})
    assert "| node | 2 | 1 | 0 | 0 | 1 |" in text
    assert "- `b`: x 3 y" in text
