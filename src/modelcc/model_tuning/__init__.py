"""Tuning of a model: graph-level choices, kernels by measurement, then all together."""
