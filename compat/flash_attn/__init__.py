"""The import name of FlashAttention-2, on flash-attn-rocm.

The version is that of the interface; its local part says whose implementation it is.
"""

from pkgutil import extend_path

from flash_attn_rocm.interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

# Another distribution may put its own modules under this name, as flash_attn.cute does.
__path__ = extend_path(__path__, __name__)

__version__ = "2.8.3+flash.attn.rocm.0.1.0"

__all__ = [
    "__version__",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
