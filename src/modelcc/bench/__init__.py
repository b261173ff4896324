"""Comparison of engines by latency and memory."""
