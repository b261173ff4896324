"""Passes over tensor programs that pay on microcontrollers."""
