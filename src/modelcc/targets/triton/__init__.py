"""Triton: kernels of the tensor level as programs of blocks, in Python source to read and tune."""
