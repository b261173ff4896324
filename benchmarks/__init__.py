"""Models for measurements, and a harness that compares engines."""
