"""The page of PyTorch's models is what its writer prints."""

from __future__ import annotations

from pathlib import Path

from conformance.torch_models.outcome import Outcome, outcomes_in, page_of

PAGE = Path(__file__).parents[2] / "docs/torch-models.md"


def test_the_page_is_of_this_form() -> None:
    text = PAGE.read_text("utf-8")
    assert page_of(list(outcomes_in(text))) == text


def test_outcomes_are_counted_by_library_and_way() -> None:
    found = [
        Outcome("b/two", "vision", "torch.compile", "passed", 2e-7, 1.26, 9, 1, ("aten.sort",)),
        Outcome("b/two", "vision", "torch.export", "wrong: error 1e-2"),
        Outcome("a/one", "encoder", "torch.export", "unsupported: aten.x (a | b)\nmore"),
        Outcome("a/none", "encoder", "torch.export", "not built: it stays large"),
    ]
    page = page_of(found)
    assert "| a | torch.export | 1 | 0 | 0 | 1 | 0 | 0 | 0 |" in page
    assert "| b | torch.compile | 1 | 1 | 0 | 0 | 0 | 0 | 0 |" in page
    assert "| a/one | encoder | torch.export | unsupported: aten.x (a / b) more |" in page
    assert "| b/two | vision | torch.compile | 9 | 1.3 | 2.0e-07 | 1 | sort |" in page
    assert "| a/none | encoder | it stays large |" in page
    assert [o.model for o in outcomes_in(page)] == ["a/one", "b/two", "b/two", "a/none", "a/none"]
