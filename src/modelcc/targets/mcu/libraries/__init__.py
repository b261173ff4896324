"""Libraries of vendors that kernels of microcontrollers may be calls of."""
