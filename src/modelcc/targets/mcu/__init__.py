"""Microcontrollers: C99 for small processors, in memory that the caller gives."""
