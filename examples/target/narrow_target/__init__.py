"""A target for modelcc from another package; see target.py."""
