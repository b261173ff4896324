"""Training: a step as one compiled program, and what runs it over data."""
