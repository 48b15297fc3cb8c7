// In the place of CK's header of this path: gfx1153 is a gfx11 GPU too (CK lists those by name and lacks it), and gfx11 adds
// floats to memory atomically through buffer descriptors, which keep what lies beyond the last row unwritten.
#pragma once

#if defined(__gfx1153__) && !defined(__gfx1152__)
#define __gfx1152__
#include_next "ck_tile/core/config.hpp"
#undef __gfx1152__
#else
#include_next "ck_tile/core/config.hpp"
#endif

#if defined(__gfx11__)
#undef CK_TILE_USE_AMD_BUFFER_ATOMIC_ADD_FLOAT
#define CK_TILE_USE_AMD_BUFFER_ATOMIC_ADD_FLOAT 1
#endif
