"""Irregular operators beside the libraries that do nothing else, one thread."""
