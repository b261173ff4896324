"""A compiled model as a folder for browsers: page, loader, steps, kernels and weights."""
