// operator new and delete for a library that MinGW compiled: memory of the C library that torch uses.
//
// torch's stable ABI hands over optional arguments that the callee deletes (stableivalue_conversions.h, before torch
// 2.13). torch for Windows takes them from the heap of ucrtbase.dll, MinGW's own delete would give them to msvcrt.dll's.
#ifdef __MINGW32__

#include <cstddef>
#include <new>

#include <windows.h>

namespace {

struct Heap
{
    void* (*allocate)(std::size_t);
    void (*release)(void*);
};

Heap find_heap()
{
    // It is loaded: torch needs it. Part of Windows 10 and later.
    const HMODULE library = LoadLibraryExW(L"ucrtbase.dll", nullptr, LOAD_LIBRARY_SEARCH_SYSTEM32);
    return {reinterpret_cast<void* (*)(std::size_t)>(reinterpret_cast<void*>(GetProcAddress(library, "malloc"))),
            reinterpret_cast<void (*)(void*)>(reinterpret_cast<void*>(GetProcAddress(library, "free")))};
}

const Heap& heap()
{
    static const Heap found = find_heap();
    return found;
}

} // namespace

void* operator new(std::size_t bytes)
{
    if(void* memory = heap().allocate(bytes == 0 ? 1 : bytes))
    {
        return memory;
    }
    throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { heap().release(memory); }
void operator delete(void* memory, std::size_t) noexcept { heap().release(memory); }

#endif
