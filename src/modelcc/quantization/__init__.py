"""Post-training quantisation: a float model and examples of its inputs give one in bytes."""
