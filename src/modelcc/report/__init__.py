"""Reports for people: on compiled models, model files, and progress."""
