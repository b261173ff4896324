"""Irregular operators compared with specialised libraries, on one thread."""
