"""The main loop is found in a listing like llvm-objdump's, written by hand."""

from __future__ import annotations

from ck.main_loop import MainLoop, find_main_loops

LISTING = """
0000000000001000 <with_loop>:
\ts_mov_b32 s0, 0                                            // 000000001000: BE800080
\tscratch_store_b32 off, v1, off                             // 000000001004: ED000000
\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]  // 000000001010: CC400000
\tscratch_load_b32 v1, off, off                              // 000000001018: ED000000
\ts_cbranch_scc1 65533                                       // 000000001024: BFA2FFFD <with_loop+0x10>
\ts_cbranch_scc0 65524                                       // 000000001028: BFA1FFF4 <with_loop+0x24>
\ts_branch 1                                                 // 00000000102C: BFA00001 <with_loop+0x34>
\tscratch_load_b32 v2, off, off                              // 000000001030: ED000000
\ts_endpgm                                                   // 000000001034: BFB00000

0000000000002000 <from_the_start>:
\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]    // 000000002000: D3CC0000
\ts_cbranch_vccnz 65534                                      // 000000002008: BF87FFFE <from_the_start>
\ts_endpgm                                                   // 00000000200C: BF810000

0000000000003000 <no_loop>:
\ts_endpgm                                                   // 000000003000: BFB00000
"""


def test_the_longest_loop_with_matrix_instructions_is_counted() -> None:
    """The store before the loop, a loop without matrix instructions and a forward branch do not count."""
    assert find_main_loops(LISTING) == {
        "with_loop": MainLoop(instructions=3, matrix=1, scratch=1),
        "from_the_start": MainLoop(instructions=2, matrix=1, scratch=0),
        "no_loop": None,
    }
