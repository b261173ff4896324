"""OpenCL C: a table for the C printer, and the target."""
