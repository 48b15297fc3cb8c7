"""What `flash-attn-rocm info` looks at: GPUs, HIP runtimes, what kernels cover, and what is wrong with them."""
