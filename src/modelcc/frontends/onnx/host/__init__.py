"""Handlers of texts, maps and images: steps of the runtime before compiled code."""
