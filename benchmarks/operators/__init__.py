"""Models of one operator each, as nobody would tune for: see `python -m benchmarks.operators`."""
