"""Latency and memory of engines side by side."""
