"""What people are told: of a compiled model, of a model's file, and of how far work is."""
