"""The LLVM text of the thread pool is what Clang makes of pool.c, and nothing else."""

from __future__ import annotations

import re

import pytest

from modelcc.runtime.pool import ARCHITECTURES, pool_llvm
from tools.compile_pool import SHARED, definitions, fingerprint, made, marked, packaged, source


def test_neither_text_was_changed_without_the_other() -> None:
    texts = packaged()
    assert marked(texts) == fingerprint(source(), texts)


def test_what_is_compiled_is_all_of_the_text() -> None:
    for architecture in ARCHITECTURES:
        parts = (packaged()[name] for name in (SHARED, f"pool_{architecture}.ll"))
        assert pool_llvm(architecture) == "".join(parts)


@pytest.mark.parametrize("old, new", [("i < SPINS", "i <= SPINS"), ("STOP = -1", "STOP = -2")])
def test_changes_of_the_c_are_noticed(old: str, new: str) -> None:
    assert old in source()
    texts = packaged()
    assert fingerprint(source().replace(old, new), texts) != marked(texts)


def test_changes_of_the_llvm_are_noticed() -> None:
    texts = packaged()
    for name, text in texts.items():
        changed = {**texts, name: re.sub(r"i32 129", "i32 128", text).replace("seq_cst", "acquire")}
        assert fingerprint(source(), changed) != marked(texts)


def test_comments_may_change() -> None:
    texts = packaged()
    assert fingerprint("/* New. */\n" + source(), texts) == marked(texts)
    assert fingerprint(source(), {n: "; New.\n" + t for n, t in texts.items()}) == marked(texts)


def test_made_again_it_is_the_same() -> None:
    pytest.importorskip("ziglang", reason="needs the pool extra")
    assert made() == packaged()


def test_definitions_are_as_written_by_hand() -> None:
    printed = """\
; Function Attrs: nounwind
define internal fastcc range(i32 0, 2) i32 @f(ptr noundef nonnull captures(none) %p) #0 {
entry:
  %0 = load i32, ptr %p, align 4, !tbaa !5
  br label %next

next:                                             ; preds = %entry
  tail call void @g(ptr noundef %p) #4
  ret i32 %0
}

declare void @g(ptr noundef) local_unnamed_addr #2
%struct.s = type { i32 }
attributes #0 = { nounwind }
"""
    assert definitions(printed) == [
        "%struct.s = type { i32 }\n",
        "declare void @g(ptr)\n",
        "define internal i32 @f(ptr %p) {\nentry:\n  %0 = load i32, ptr %p, align 4\n"
        "  br label %next\nnext:\n  call void @g(ptr %p)\n  ret i32 %0\n}\n",
    ]
