"""Attention: back-to-back contractions with a softmax between them, of many rows and of few."""
