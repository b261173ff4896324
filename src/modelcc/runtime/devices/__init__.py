"""Programs on devices: memory, steps and calls for any of them, and OpenCL, WebGPU and Metal."""
