"""The page of torch's operators: what it counts, and that it has the form that its writer makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conformance import torch_page

PAGE = Path(__file__).parents[2] / "docs" / "torch-operators.md"


@dataclass(frozen=True)
class Told:
    entry: str
    reason: str

    @property
    def passed(self) -> bool:
        return self.reason.startswith("passed")

    @property
    def refused(self) -> bool:
        return self.reason.startswith("refused by torch")


def test_the_page_is_as_its_writer_makes_it() -> None:
    text = PAGE.read_text("utf-8")
    sections, versions = torch_page.read(text)
    assert torch_page.text(sections, versions) == text
    for one in sections:
        assert all(t.compiled <= t.samples_passed <= t.samples for t in one.tallies)
        short = sum(t.samples - t.compiled for t in one.tallies)
        assert sum(r.samples for r in one.reasons) == short


def test_entries_count_if_all_that_torch_hands_over_passes() -> None:
    found = [
        Told("add", "passed"), Told("add", "refused by torch: x"),
        Told("mul", "passed"), Told("mul", "wrong: far (net.py:3) off | Mismatched elements: 7"),
        Told("item", "refused by torch: no tensor comes out"),
        Told("det", "passed, in part by PyTorch: aten.det"),
        Told("asin", f"{torch_page.WIDE} or so"),
    ]  # fmt: skip
    made = torch_page.section(found, dict.fromkeys((t.entry for t in found), "all of it"), 40)
    assert made.tallies == (torch_page.Tally("all of it", 5, 1, 3, 7, 2, 4, 1, 3),)
    assert torch_page.Reason(1, "wrong: far off /", "`mul`") in made.reasons
    text = torch_page.text([made, made], "torch 0")
    assert "75.0 % of entries and 80.0 % of samples pass" in text
    assert torch_page.read(text) == ([made, made], "torch 0")
