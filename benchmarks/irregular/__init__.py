"""Operators whose work depends on data: see ``python -m benchmarks.irregular``."""
