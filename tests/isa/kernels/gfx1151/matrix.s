// Matrix kernels of gfx1151.
.include "wmma_replicated.inc"
