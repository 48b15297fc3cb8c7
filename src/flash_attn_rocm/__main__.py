"""`python -m flash_attn_rocm`: the same commands as the `flash-attn-rocm` program."""

import sys

from flash_attn_rocm.cli import main

if __name__ == "__main__":
    sys.exit(main())
