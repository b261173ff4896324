"""Models of PyTorch's libraries through compiled code."""
