"""A model tuned: choices above kernels, kernels by measurement, then all together."""
