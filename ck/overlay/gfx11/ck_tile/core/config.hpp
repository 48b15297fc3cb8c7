// In the place of CK's header of this path: gfx1153 is a gfx11 GPU too. CK lists those by name and lacks it.
#pragma once

#if defined(__gfx1153__) && !defined(__gfx1152__)
#define __gfx1152__
#include_next "ck_tile/core/config.hpp"
#undef __gfx1152__
#else
#include_next "ck_tile/core/config.hpp"
#endif
