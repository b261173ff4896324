"""Devices with streams and recorded graphs: NVIDIA's by CUDA and AMD's by HIP."""
