"""Models of one operator each, that no engine is tuned for: see `python -m
benchmarks.operators`."""
