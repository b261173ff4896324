"""Is the result right, and if not, which pass did it?"""
