// What generated handlers include: all semantics, and the dispatch to the next instruction.
#pragma once
#include <iterator>
#include <vector>

#include "machine/access.hpp"
#include "machine/family.hpp"
#include "semantics/control.hpp"
#include "semantics/convert.hpp"
#include "semantics/dpp.hpp"
#include "semantics/global_atomic.hpp"
#include "semantics/lane.hpp"
#include "semantics/lds.hpp"
#include "semantics/memory.hpp"
#include "semantics/scalar.hpp"
#include "semantics/sdwa.hpp"
#include "semantics/vector_float.hpp"
#include "semantics/vector_integer.hpp"
#if EMU_LANES == 32
#include "semantics/wmma.hpp"
#include "semantics/wmma_replicated.hpp"
#else
#include "semantics/mfma.hpp"
#endif

// Threaded code: each handler jumps to the next, without returning to a loop.
#define NEXT \
  ++op;      \
  [[clang::musttail]] return op->handler(state, op)
