"""Kernels and models on an NVIDIA GPU beside PyTorch: ``python -m benchmarks.gpu FOLDER``."""
