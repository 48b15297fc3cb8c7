"""From tables to kernels: which CK kernels exist, their tiles, HIP source and manifest."""
