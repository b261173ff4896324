"""Runs PTX on the host, thread by thread, as its specification says: what NVIDIA's GPUs would do
with the text that kernels become, where there is none."""
