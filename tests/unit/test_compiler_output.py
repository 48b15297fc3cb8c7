"""Finding the first error in what a compiler wrote."""

from __future__ import annotations

from scripts.buildlib.compiler_output import first_error

# The shape of clang's output: an include stack, the error, its source lines, its notes, then the next error.
CLANG = """x.hip:1:2: warning: something else
In file included from /w/unit.hip:2:
In file included from /c/fmha_fwd.hpp:15:
/ck/pipeline.hpp:64:19: error: static assertion failed due to requirement 'a'
   64 |     static_assert(a);
      |                   ^
/ck/kernel.hpp:32:53: note: in instantiation of template class 'K' requested here
   32 |     K::value;
      |        ^
In file included from /w/unit.hip:2:
/ck/kernel.hpp:72:39: error: const variable cannot be emitted
   72 |     static
      |     ^
2 errors generated when compiling for gfx1201.
"""


def test_first_error_is_whole_with_its_include_stack_and_notes() -> None:
    lines = first_error(CLANG, 1).splitlines()
    assert lines[0] == "In file included from /w/unit.hip:2:"
    assert lines[2].endswith("static assertion failed due to requirement 'a'")
    assert lines[-1] == "      |        ^"
    assert len(lines) == 8


def test_single_error_stops_before_the_count() -> None:
    assert first_error("a.hip:1:1: fatal error: 'x.hpp' file not found\n1 error generated.\n", 1) == (
        "a.hip:1:1: fatal error: 'x.hpp' file not found"
    )


def test_lld_errors_count_too() -> None:
    assert first_error("lld: error: undefined symbol: f\n", 1) == "lld: error: undefined symbol: f"


def test_killed_compiler_is_explained() -> None:
    assert "want of memory: lower MAX_JOBS" in first_error("", -9)
    assert "exit code 3" in first_error("strange\n", 3)
    assert first_error("strange\n", 3).startswith("strange")
