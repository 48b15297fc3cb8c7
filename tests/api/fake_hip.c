// A HIP runtime that runs nothing: it appends every call to a log, so that tests can check launches byte by byte.
//
// Environment: FAKE_HIP_LOG (file, one JSON object a line), FAKE_HIP_VERSION (as hipRuntimeGetVersion gives it),
// FAKE_HIP_GFX and FAKE_HIP_NAME (of the one device), FAKE_HIP_WAVE_SIZE, FAKE_HIP_LAUNCH_ERROR (error code every launch returns).
// It poses as the emulated runtime, so that launches come from CPU tensors. FAKE_HIP_INCOMPLETE leaves out
// hipModuleLaunchKernel and hipHostRegister.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kNameSize = 256, kMaxFunctions = 64 };

static char function_names[kMaxFunctions][kNameSize];
static int function_count;
static _Thread_local int last_error; // of the calls that fail on request

static const char* setting(const char* name, const char* fallback)
{
    const char* value = getenv(name);
    return value != NULL && *value != '\0' ? value : fallback;
}

// FAKE_HIP_QUIET, for benchmarks: nothing is logged, and a launch does nothing at all.
#ifdef FAKE_HIP_QUIET
enum { kQuiet = 1 };
#else
enum { kQuiet = 0 };
#endif

static FILE* open_log(void)
{
    FILE* log = fopen(setting("FAKE_HIP_LOG", "/dev/null"), "a");
    if(log == NULL)
    {
        abort();
    }
    return log;
}

static void log_range(const char* call, const void* pointer, size_t bytes)
{
    if(kQuiet)
    {
        return;
    }
    FILE* log = open_log();
    fprintf(log, "{\"call\": \"%s\", \"pointer\": %llu, \"bytes\": %zu}\n", call,
            (unsigned long long)(uintptr_t)pointer, bytes);
    fclose(log);
}

int hipInit(unsigned int flags)
{
    (void)flags;
    return 0;
}

int hipRuntimeGetVersion(int* version)
{
    *version = atoi(setting("FAKE_HIP_VERSION", "60443484"));
    return 0;
}

int hipGetDeviceCount(int* count)
{
    *count = 1;
    return 0;
}

int hipGetDevice(int* device)
{
    *device = 0;
    return 0;
}

// Offsets of hipDeviceProp_tR0600 in HIP 6.4's hip_runtime_api.h: size 1472, warpSize 308, multiProcessorCount 388,
// gcnArchName 1160.
int hipGetDevicePropertiesR0600(char* properties, int device)
{
    (void)device;
    log_range("hipGetDevicePropertiesR0600", NULL, 0);
    memset(properties, 0, 1472);
    snprintf(properties, kNameSize, "%s", setting("FAKE_HIP_NAME", "Fake GPU"));
    const int warp_size       = atoi(setting("FAKE_HIP_WAVE_SIZE", "32"));
    const int multiprocessors = 64;
    memcpy(properties + 308, &warp_size, sizeof(int));
    memcpy(properties + 388, &multiprocessors, sizeof(int));
    snprintf(properties + 1160, kNameSize, "%s", setting("FAKE_HIP_GFX", "gfx1201"));
    return 0;
}

int hipGetLastError(void)
{
    const int error = last_error;
    last_error      = 0;
    return error;
}

const char* hipGetErrorName(int error) { return error == 719 ? "hipErrorLaunchFailure" : "hipErrorUnknown"; }

const char* hipGetErrorString(int error) { return error == 719 ? "unspecified launch failure" : "unknown error"; }

int hipModuleLoadData(void** module, const void* image)
{
    log_range("hipModuleLoadData", image, strlen(image));
    *module = (void*)image;
    return 0;
}

int hipModuleGetFunction(void** function, void* module, const char* name)
{
    (void)module;
    if(function_count == kMaxFunctions)
    {
        return 2;
    }
    snprintf(function_names[function_count], kNameSize, "%s", name);
    *function = function_names[function_count++];
    return 0;
}

int hipStreamSynchronize(void* stream)
{
    log_range("hipStreamSynchronize", stream, 0);
    return 0;
}

int hipHostUnregister(void* pointer)
{
    log_range("hipHostUnregister", pointer, 0);
    return 0;
}

const char* flash_attn_rocm_emulator_last_fault(void) { return "fake fault report"; }

#ifndef FAKE_HIP_INCOMPLETE

int hipHostRegister(void* pointer, size_t bytes, unsigned int flags)
{
    log_range(flags == 2 ? "hipHostRegister" : "hipHostRegister with wrong flags", pointer, bytes);
    return 0;
}

int hipModuleLaunchKernel(void* function,
                          unsigned int grid_x,
                          unsigned int grid_y,
                          unsigned int grid_z,
                          unsigned int block_x,
                          unsigned int block_y,
                          unsigned int block_z,
                          unsigned int shared_bytes,
                          void* stream,
                          void** parameters,
                          void** extra)
{
    // extra: {1, buffer, 2, &bytes, 3}, the keys of HIP_LAUNCH_PARAM_*.
    if(parameters != NULL || extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4] != (void*)3)
    {
        return 1;
    }
    if(kQuiet)
    {
        return 0;
    }
    const unsigned char* arguments = extra[1];
    const size_t bytes             = *(const size_t*)extra[3];
    FILE* log                      = open_log();
    fprintf(log,
            "{\"call\": \"launch\", \"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
            "\"shared\": %u, \"stream\": %llu, \"arguments\": \"",
            (const char*)function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
            (unsigned long long)(uintptr_t)stream);
    for(size_t i = 0; i < bytes; ++i)
    {
        fprintf(log, "%02x", arguments[i]);
    }
    fprintf(log, "\"}\n");
    fclose(log);
    last_error = atoi(setting("FAKE_HIP_LAUNCH_ERROR", "0"));
    return last_error;
}

#endif
