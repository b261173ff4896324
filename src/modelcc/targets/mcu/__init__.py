"""Microcontrollers: C99 for small processors, in caller-allocated memory."""
