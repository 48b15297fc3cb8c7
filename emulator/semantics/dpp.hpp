// Data-parallel primitives (RDNA3 ISA guide 7.7; the wave and row_bcast controls: Vega ISA guide, "DPP"): the first
// source of a vector instruction comes from other lanes.
#pragma once
#include "decode/dpp.hpp"
#include "machine/access.hpp"
#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE {

// Where each lane's source is, and which lanes get a result. A source is invalid where it is outside the row or wave, or
// in an inactive lane that is not to be fetched; bound_ctrl then says 0 or no result. (The guide's table 31 and its
// text differ on sources outside the row with FI = 1; here bound_ctrl decides, as the text says.)
class Dpp {
 public:
  [[gnu::always_inline]] Dpp(const Wave* wave, const Op* op) {
    const u32 control = u32(op->offset);
    const U32 lane = lane_numbers();
    S32 exists = S32(-1);
    from_ = source_lanes(control, lane, exists) & U32(kLanes - 1);
    if ((control & DppControl::kFetchInactive) == 0) exists &= bits<S32>(gather(bits<U32>(wave->exec_lanes)));
    exists_ = exists;
    if ((control & DppControl::kDpp8) != 0) {
      written_ = S32(-1);
      return;
    }
    written_ = (control & DppControl::kBoundZero) != 0 ? S32(-1) : exists;
    written_ &= bits<S32>((U32(control >> DppControl::kRowMask) >> (lane >> U32(4))) & U32(1)) != S32(0);
    written_ &= bits<S32>((U32(control >> DppControl::kBankMask) >> ((lane >> U32(2)) & U32(3))) & U32(1)) != S32(0);
  }

  // The source as vector_in and half_in read it, but from its lanes.
  template <class V>
  [[gnu::always_inline]] V in(const Wave* wave, u32 vgpr) const {
    if constexpr (sizeof(V) == sizeof(U32))
      return bits<V>(fetch(wave->v[vgpr]));
    else
      return bits<V>(join(fetch(wave->v[vgpr]), fetch(wave->v[vgpr + 1])));
  }
  [[gnu::always_inline]] U32 half_in(const Wave* wave, u32 vgpr, bool high) const {
    return fetch(emu::half_in(wave, vgpr, high));
  }
  // A lane mask that the instruction gives: 0 where it writes nothing.
  [[gnu::always_inline]] S32 written(S32 lanes) const { return lanes & written_; }

 private:
  static U32 source_lanes(u32 control, U32 lane, S32& exists) {
    const U32 row = lane & U32(~15u), place = lane & U32(15);
    if ((control & DppControl::kDpp8) != 0)
      return (lane & U32(~7u)) | ((U32(control) >> ((lane & U32(7)) * U32(3))) & U32(7));
    const u32 selection = control & 0x1FF, count = control & 15;
    switch (selection >> 4) {
      case 0x10:  // row_shl
        exists = place + U32(count) < U32(16);
        return lane + U32(count);
      case 0x11:  // row_shr
        exists = place >= U32(count);
        return lane - U32(count);
      case 0x12:  // row_ror
        return row | ((place - U32(count)) & U32(15));
      case 0x15:  // row_share, row_newbcast
        return row | U32(count);
      case 0x16:  // row_xmask
        return lane ^ U32(count);
      default:
        break;
    }
    switch (selection) {
      case 0x130:  // wave_shl:1
        exists = lane < U32(kLanes - 1);
        return lane + U32(1);
      case 0x134:  // wave_rol:1
        return lane + U32(1);
      case 0x138:  // wave_shr:1
        exists = lane > U32(0);
        return lane - U32(1);
      case 0x13C:  // wave_ror:1
        return lane - U32(1);
      case 0x140:  // row_mirror
        return lane ^ U32(15);
      case 0x141:  // row_half_mirror
        return lane ^ U32(7);
      case 0x142:  // row_bcast:15: the last lane of the row before
        exists = lane > U32(15);
        return row - U32(1);
      case 0x143:  // row_bcast:31: lane 31 to the lanes behind it
        exists = lane > U32(31);
        return U32(31);
      default:  // quad_perm
        return (lane & U32(~3u)) | ((U32(selection) >> ((lane & U32(3)) * U32(2))) & U32(3));
    }
  }
  [[gnu::always_inline]] U32 gather(U32 data) const {
    U32 result;
    for (int i = 0; i < kLanes; ++i) result[i] = data[from_[i]];
    return result;
  }
  [[gnu::always_inline]] U32 fetch(U32 data) const { return select(exists_, gather(data), U32(0)); }

  U32 from_;
  S32 exists_, written_;
};

// While it lives, vector results go to the lanes that the DPP instruction writes.
class DppWrites {
 public:
  [[gnu::always_inline]] DppWrites(Wave* wave, const Dpp& dpp) : wave_(wave), active_(wave->exec_lanes) {
    wave->exec_lanes = dpp.written(active_);
  }
  [[gnu::always_inline]] ~DppWrites() { wave_->exec_lanes = active_; }
  DppWrites(const DppWrites&) = delete;
  DppWrites& operator=(const DppWrites&) = delete;

 private:
  Wave* wave_;
  S32 active_;
};

}  // namespace emu::inline EMU_WAVE
