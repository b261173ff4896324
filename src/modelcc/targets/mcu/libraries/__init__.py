"""Vendor libraries that kernels of microcontrollers may call."""
