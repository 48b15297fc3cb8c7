// Matrix kernels of gfx1100.
.include "wmma_replicated.inc"
