"""Microcontrollers without one: models built with start-up code, and run in QEMU."""
