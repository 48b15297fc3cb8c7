"""Where a compiler for the kernels may be: one module per place, each a generator of candidates, best first."""
