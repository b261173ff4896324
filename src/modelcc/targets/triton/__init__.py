"""Triton: kernels of the tensor level as block programs, in Python source to read and tune."""
