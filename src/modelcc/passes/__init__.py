"""Passes, one file each, by the level they work on."""
