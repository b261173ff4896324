"""The levels as text, and what they mean."""
