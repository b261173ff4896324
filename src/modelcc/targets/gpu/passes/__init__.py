"""What kernels for groups of threads become first, on the tensor level."""
