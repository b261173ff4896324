"""Caches as Linux describes them, in folders like those of /sys."""

from __future__ import annotations

from pathlib import Path

from modelcc.runtime.caches import SystemCache, system_caches


def write_cache(folder: Path, number: int, **contents: str) -> None:
    place = folder / f"index{number}"
    place.mkdir(parents=True)
    for name, text in contents.items():
        (place / name).write_text(text + "\n")


def test_data_caches_with_their_cores(tmp_path: Path) -> None:
    write_cache(tmp_path, 3, type="Unified", level="3", size="32M", shared_cpu_list="0-7,16-23")
    write_cache(tmp_path, 0, type="Data", level="1", size="48K", shared_cpu_list="0,16")
    write_cache(tmp_path, 1, type="Instruction", level="1", size="64K", shared_cpu_list="0,16")
    write_cache(tmp_path, 2, type="Unified", level="2", size="1048576", shared_cpu_list="0")
    assert system_caches(tmp_path) == (
        SystemCache(1, 48 << 10, 2),
        SystemCache(2, 1 << 20, 1),
        SystemCache(3, 32 << 20, 16),
    )


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, type="Data", level="1", size="much")
    write_cache(tmp_path, 1, type="Unified", level="2", size="0K")
    write_cache(tmp_path, 2, type="Unified", level="x", size="1M")
    write_cache(tmp_path, 3, level="3", size="1M")
    write_cache(tmp_path, 4, type="Unified", level="3", size="2G", shared_cpu_list="none")
    assert system_caches(tmp_path) == (SystemCache(3, 2 << 30, 1),)
    assert system_caches(tmp_path / "nowhere") == ()
