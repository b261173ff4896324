"""Targets: from the loop and program levels to code for one kind of machine."""
