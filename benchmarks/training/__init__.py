"""Training steps of modelcc's own layers, PyTorch and JAX, side by side."""
