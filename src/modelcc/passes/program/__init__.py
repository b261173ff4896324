"""From scheduled kernels to a host program: step order, memory plan, launches."""
