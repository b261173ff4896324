"""Training: graphs of gradients."""
