"""Rewrites of tensor programs that pay on microcontrollers."""
