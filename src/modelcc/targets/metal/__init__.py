"""Metal's shading language: a table for the C printer, and the target."""
