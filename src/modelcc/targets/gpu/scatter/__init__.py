"""Updates at indices from memory."""
