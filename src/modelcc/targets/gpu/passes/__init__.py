"""Rewrites on the tensor level for kernels of thread groups."""
