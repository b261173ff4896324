"""A short campaign on compiled models of fixed seed, and that faults would be found."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_models import computed_gather, mlp

from fuzz.artifact_mutations import CHANGES, damaged
from fuzz.artifacts import Compiled, compiled, mutant, try_mutant
from fuzz.report import groups, summary
from modelcc.artifact import archive
from modelcc.artifact.file import read_artifact


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    models = [model.SerializeToString() for model in (mlp("batch"), computed_gather())]
    return [*compiled(models, tmp_path_factory.mktemp("corpus"))]


def test_mutants_are_refused_or_right(corpus: list[Compiled], tmp_path: Path) -> None:
    found = [try_mutant(corpus, 3, number, tmp_path / "a.mcc") for number in range(120)]
    assert not groups(found), "\n".join(groups(found))
    kinds = {each.outcome.kind for each in found}
    assert {"refused", "imported"} <= kinds <= {"refused", "imported", "ran"}
    assert "120 mutants of 2 models" in summary(found)


@pytest.mark.parametrize("change", dict.fromkeys(CHANGES), ids=lambda change: change.__name__)
def test_every_change_makes_another_file(
    corpus: Any, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.artifact_mutations.CHANGES", (change,))
    data = corpus[0].data
    found = [damaged(data, Random(seed)) for seed in range(40)]
    assert any(contents != data for name, contents in found if name == change.__name__)


def test_a_mutant_can_be_made_again(corpus: list[Compiled]) -> None:
    assert mutant(corpus, 1, 5) == mutant(corpus, 1, 5)
    assert len({mutant(corpus, 1, n)[2] for n in range(20)}) > 15


def test_faults_are_found(
    corpus: list[Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With checksums that nobody compares a changed weight is a wrong result."""
    data = bytearray(corpus[0].data)
    path = tmp_path / "a.mcc"
    path.write_bytes(data)
    weights = max(read_artifact(path).constants.values(), key=lambda array: array.size)
    data[data.index(weights.tobytes()) + 3] ^= 0x40
    monkeypatch.setattr("fuzz.artifacts.mutant", lambda *_: (0, "flip_bits", bytes(data)))
    assert try_mutant(corpus, 0, 0, path).outcome.kind == "refused"
    monkeypatch.setattr(archive, "read_contents", _unchecked)
    assert try_mutant(corpus, 0, 0, path).outcome.kind == "wrong"


def _unchecked(file: Any, member: Any):
    file.seek(member.start)
    return file.read(member.size)
