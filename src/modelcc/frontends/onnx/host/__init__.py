"""Handlers of strings, maps and images: runtime steps before compiled code."""
