"""WebGPU: a printer of WGSL, what runs it by `wgpu`, and pages for browsers."""
