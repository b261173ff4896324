"""Inputs to run a model on: random ones, and those in files."""
