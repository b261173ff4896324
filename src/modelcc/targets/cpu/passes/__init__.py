"""Rewrites of tensor programs that pay on processors: layouts, packing, fewer multiplications."""
