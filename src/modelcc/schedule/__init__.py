"""From kernels to loops, for any machine: canonical kernels, loop nests, iteration domains."""
