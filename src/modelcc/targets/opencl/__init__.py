"""OpenCL C: a table for the C printer, and what runs it."""
