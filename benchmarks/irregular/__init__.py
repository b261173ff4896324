"""Operators with data-dependent work: see ``python -m benchmarks.irregular``."""
