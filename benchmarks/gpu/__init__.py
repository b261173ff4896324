"""Kernels and models on an NVIDIA GPU compared with PyTorch: ``python -m benchmarks.gpu
FOLDER``."""
