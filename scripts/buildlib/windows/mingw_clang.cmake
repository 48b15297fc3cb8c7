# CMake toolchain: for 64-bit Windows with clang, and MinGW-w64's headers and libraries, from Linux. For the emulated HIP
# runtime, which needs clang. CMAKE_CXX_COMPILER names the clang.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_CXX_COMPILER_TARGET x86_64-w64-windows-gnu)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# -pthread: after libstdc++, which uses it. lld: GNU ld warns of what clang and g++ name alike.
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-pthread -fuse-ld=lld")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pthread -fuse-ld=lld")
