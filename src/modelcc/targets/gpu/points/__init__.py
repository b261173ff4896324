"""Element-wise kernels, data movement, and transforms in registers."""
