"""Microcontrollers emulated: models built with start-up code, and run in QEMU."""
