"""A compiled model as C99 for microcontrollers: one source, one header, an example."""
