"""Passes over loop-level functions."""
