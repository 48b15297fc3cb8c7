// In the place of CK's header of this path: the product whose A is in registers takes an A in the layout of a result.
#pragma once

#define BlockGemmARegBSmemCRegV2 BlockGemmARegBSmemCRegV2OfCk
#include_next "ck_tile/ops/gemm/block/block_gemm_areg_bsmem_creg_v2.hpp"
#undef BlockGemmARegBSmemCRegV2

#include "flash_attn_rocm/gfx11_layout.hpp"

namespace ck_tile {

template <typename Problem_, typename Policy_ = BlockGemmARegBSmemCRegV2DefaultPolicy>
struct BlockGemmARegBSmemCRegV2 : BlockGemmARegBSmemCRegV2OfCk<Problem_, Policy_>
{
    using Base = BlockGemmARegBSmemCRegV2OfCk<Problem_, Policy_>;

    // C += A * B
    template <typename CTile, typename ATile, typename BWindow>
    CK_TILE_DEVICE void operator()(CTile& c, const ATile& a, const BWindow& b) const
    {
        using Given = remove_cvref_t<decltype(a.get_thread_buffer())>;
        auto laid_out =
            make_static_distributed_tensor<typename ATile::DataType>(Base::MakeABlockTileDistribution());
        using Wanted = remove_cvref_t<decltype(laid_out.get_thread_buffer())>;
        if constexpr(Given::size() == Wanted::size())
            Base::operator()(c, a, b);
        else
        {
            flash_attn_rocm::gfx11_c_to_a(laid_out.get_thread_buffer(), a.get_thread_buffer());
            Base::operator()(c, laid_out, b);
        }
    }

    // C = A * B
    template <typename ATile, typename BWindow>
    CK_TILE_DEVICE auto operator()(const ATile& a, const BWindow& b) const
    {
        auto c = Base::MakeCBlockTile();
        operator()(c, a, b);
        return c;
    }
};

} // namespace ck_tile
