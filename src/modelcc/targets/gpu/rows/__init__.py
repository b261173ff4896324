"""Reductions, row kernels (softmax, norms), and products of the few rows that one makes."""
