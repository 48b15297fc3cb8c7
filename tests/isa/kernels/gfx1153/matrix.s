// Matrix kernels of gfx1153.
.include "wmma_replicated.inc"
