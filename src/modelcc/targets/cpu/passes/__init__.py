"""Passes over tensor programs that pay on CPUs: layouts, packing, fewer multiplications."""
