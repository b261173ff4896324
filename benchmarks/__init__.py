"""Models to measure with, and a side-by-side harness against other engines."""
