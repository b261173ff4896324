"""Text forms of the levels, and their semantics."""
