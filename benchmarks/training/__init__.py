"""Training steps of modelcc's own layers, PyTorch and JAX, compared."""
