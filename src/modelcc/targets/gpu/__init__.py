"""Kernels as groups of threads (CTAs, workgroups), for any accelerator."""
