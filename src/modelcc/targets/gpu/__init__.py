"""Kernels as groups of threads, for any accelerator."""
