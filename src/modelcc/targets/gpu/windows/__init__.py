"""Overlapping windows: depthwise convolution and pooling."""
