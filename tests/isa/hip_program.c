/* A program that knows nothing of this project: it loads libamdhip64 and uses HIP as hip/hip_runtime_api.h declares it.
 * usage: hip_program LIBRARY CODE_OBJECT, with two emulated devices of which the first is the code object's GPU.
 * Prints the first failed expectation and exits with 1, or "passed". */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int hipError_t;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipModule_t* hipModule_t;
typedef struct ihipModuleSymbol_t* hipFunction_t;
typedef void* hipDeviceptr_t;

enum {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNoBinaryForGpu = 209,
  hipErrorFileNotFound = 301,
  hipErrorInvalidHandle = 400,
  hipErrorNotFound = 500,
  hipErrorIllegalAddress = 700
};
enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };

#define FUNCTIONS(X)                                                                                                 \
  X(hipInit, (unsigned))                                                                                             \
  X(hipGetDeviceCount, (int*))                                                                                       \
  X(hipSetDevice, (int))                                                                                             \
  X(hipDeviceGetName, (char*, int, int))                                                                             \
  X(hipDeviceGetAttribute, (int*, int, int))                                                                         \
  X(hipMemGetInfo, (size_t*, size_t*))                                                                               \
  X(hipPeekAtLastError, (void))                                                                                      \
  X(hipGetLastError, (void))                                                                                         \
  X(hipModuleLoad, (hipModule_t*, const char*))                                                                      \
  X(hipModuleUnload, (hipModule_t))                                                                                  \
  X(hipModuleGetFunction, (hipFunction_t*, hipModule_t, const char*))                                                \
  X(hipModuleGetGlobal, (hipDeviceptr_t*, size_t*, hipModule_t, const char*))                                        \
  X(hipFuncGetAttribute, (int*, int, hipFunction_t))                                                                 \
  X(hipModuleLaunchKernel, (hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                            hipStream_t, void**, void**))                                                            \
  X(hipMalloc, (void**, size_t))                                                                                     \
  X(hipFree, (void*))                                                                                                \
  X(hipMemcpy, (void*, const void*, size_t, int))                                                                    \
  X(hipMemcpyAsync, (void*, const void*, size_t, int, hipStream_t))                                                  \
  X(hipMemsetAsync, (void*, int, size_t, hipStream_t))                                                               \
  X(hipStreamCreateWithFlags, (hipStream_t*, unsigned))                                                              \
  X(hipStreamCreateWithPriority, (hipStream_t*, unsigned, int))                                                      \
  X(hipStreamGetFlags, (hipStream_t, unsigned*))                                                                     \
  X(hipStreamGetPriority, (hipStream_t, int*))                                                                       \
  X(hipStreamWaitEvent, (hipStream_t, hipEvent_t, unsigned))                                                         \
  X(hipStreamQuery, (hipStream_t))                                                                                   \
  X(hipStreamSynchronize, (hipStream_t))                                                                             \
  X(hipStreamDestroy, (hipStream_t))                                                                                 \
  X(hipEventCreate, (hipEvent_t*))                                                                                   \
  X(hipEventCreateWithFlags, (hipEvent_t*, unsigned))                                                                \
  X(hipEventRecord, (hipEvent_t, hipStream_t))                                                                       \
  X(hipEventSynchronize, (hipEvent_t))                                                                               \
  X(hipEventQuery, (hipEvent_t))                                                                                     \
  X(hipEventElapsedTime, (float*, hipEvent_t, hipEvent_t))                                                           \
  X(hipEventDestroy, (hipEvent_t))

#define DECLARE(name, parameters) static hipError_t(*name) parameters;
FUNCTIONS(DECLARE)

static void check(int holds, const char* text, int line) {
  if (holds) return;
  printf("line %d: %s\n", line, text);
  exit(1);
}
#define EXPECT(condition) check(condition, #condition, __LINE__)
#define OK(call) check((call) == hipSuccess, #call, __LINE__)

static void load_functions(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  EXPECT(library != NULL);
#define LOAD(name, parameters)                        \
  *(void**)&name = dlsym(library, #name);             \
  check(name != NULL, "missing " #name, __LINE__);
  FUNCTIONS(LOAD)
}

static void test_devices(void) {
  int count = 0, wave = 0;
  char names[2][256];
  OK(hipGetDeviceCount(&count));
  EXPECT(count == 2);
  for (int i = 0; i < 2; ++i) OK(hipDeviceGetName(names[i], 256, i));
  EXPECT(strstr(names[0], "emulated") != NULL);
  OK(hipDeviceGetAttribute(&wave, 87, 0));
  EXPECT(wave == 32);
  EXPECT(hipDeviceGetName(names[0], 256, 2) != hipSuccess);
  EXPECT(hipPeekAtLastError() != hipSuccess);
  EXPECT(hipGetLastError() != hipSuccess);
  EXPECT(hipPeekAtLastError() == hipSuccess);
}

static void test_memory_figures(void) {
  size_t before = 0, after = 0, total = 0;
  void* memory = NULL;
  OK(hipMemGetInfo(&before, &total));
  OK(hipMalloc(&memory, 1 << 20));
  OK(hipMemGetInfo(&after, &total));
  EXPECT(before - after == 1 << 20);
  EXPECT(hipMalloc(&memory, total + 1) == hipErrorOutOfMemory);
}

static void test_streams_and_events(void) {
  hipStream_t stream, urgent;
  hipEvent_t start, stop, untimed;
  unsigned flags = 9;
  int priority = 9;
  float elapsed = -1;
  OK(hipStreamCreateWithFlags(&stream, 1));
  OK(hipStreamCreateWithPriority(&urgent, 0, -100));
  EXPECT(hipStreamCreateWithFlags(&urgent, 64) == hipErrorInvalidValue);
  OK(hipStreamGetFlags(stream, &flags));
  EXPECT(flags == 1);
  OK(hipStreamGetPriority(urgent, &priority));
  EXPECT(priority == -1);
  OK(hipEventCreate(&start));
  OK(hipEventCreate(&stop));
  OK(hipEventCreateWithFlags(&untimed, 2));
  EXPECT(hipEventElapsedTime(&elapsed, start, stop) == hipErrorInvalidHandle);
  OK(hipEventRecord(start, stream));
  OK(hipStreamWaitEvent(urgent, start, 0));
  OK(hipEventRecord(stop, urgent));
  OK(hipEventSynchronize(stop));
  OK(hipEventQuery(stop));
  OK(hipEventElapsedTime(&elapsed, start, stop));
  EXPECT(elapsed >= 0 && elapsed < 10000);
  OK(hipEventRecord(untimed, stream));
  EXPECT(hipEventElapsedTime(&elapsed, untimed, stop) == hipErrorInvalidHandle);
  OK(hipSetDevice(1));
  EXPECT(hipEventRecord(start, NULL) == hipErrorInvalidHandle);
  OK(hipSetDevice(0));
  OK(hipEventDestroy(start));
  EXPECT(hipEventRecord(start, stream) == hipErrorInvalidHandle);
  OK(hipStreamQuery(stream));
  OK(hipStreamDestroy(stream));
  EXPECT(hipStreamSynchronize(stream) == hipErrorInvalidHandle);
}

static void test_kernel(const char* path) {
  hipModule_t module;
  hipFunction_t function;
  hipDeviceptr_t base;
  hipStream_t stream;
  size_t bytes = 0;
  void *result, *elsewhere;
  uint32_t values[32], factor = 3, now = 0;
  int figure = 0;
  EXPECT(hipModuleLoad(&module, "/nowhere/to/be.co") == hipErrorFileNotFound);
  OK(hipModuleLoad(&module, path));
  OK(hipModuleGetFunction(&function, module, "scale"));
  OK(hipFuncGetAttribute(&figure, 1, function));
  EXPECT(figure == 64);
  OK(hipFuncGetAttribute(&figure, 3, function));
  EXPECT(figure == 16);
  OK(hipFuncGetAttribute(&figure, 0, function));
  EXPECT(figure == 256);
  OK(hipFuncGetAttribute(&figure, 4, function));
  EXPECT(figure >= 5 && figure <= 64);
  EXPECT(hipModuleGetGlobal(&base, &bytes, module, "no_such_variable") == hipErrorNotFound);
  OK(hipModuleGetGlobal(&base, &bytes, module, "base"));
  EXPECT(bytes == 4);
  OK(hipStreamCreateWithFlags(&stream, 0));
  OK(hipMalloc(&result, sizeof values));
  void* parameters[] = {&result, &base, &factor};
  OK(hipMemsetAsync(result, 0, sizeof values, stream));
  OK(hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
  OK(hipMemcpyAsync(values, result, sizeof values, hipMemcpyDeviceToHost, stream));
  OK(hipStreamSynchronize(stream));
  for (uint32_t i = 0; i < 32; ++i) EXPECT(values[i] == 3 * i + 1000);
  OK(hipMemcpy(&now, base, 4, hipMemcpyDeviceToHost));
  EXPECT(now == 3);
  now = 7;
  OK(hipMemcpy(base, &now, 4, hipMemcpyHostToDevice));
  OK(hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
  OK(hipMemcpy(values, result, sizeof values, hipMemcpyDeviceToHost));
  for (uint32_t i = 0; i < 32; ++i) EXPECT(values[i] == 3 * i + 7);

  /* Another device: of another GPU, with memory and streams of its own. */
  OK(hipSetDevice(1));
  hipModule_t other;
  EXPECT(hipModuleLoad(&other, path) == hipErrorNoBinaryForGpu);
  EXPECT(hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL) == hipErrorInvalidHandle);
  OK(hipMalloc(&elsewhere, sizeof values));
  OK(hipSetDevice(0));
  parameters[0] = &elsewhere;
  EXPECT(hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL) == hipErrorIllegalAddress);
  OK(hipFree(elsewhere));
  OK(hipModuleUnload(module));
  EXPECT(hipModuleGetFunction(&function, module, "scale") == hipErrorInvalidHandle);
}

int main(int count, char** arguments) {
  EXPECT(count == 3);
  load_functions(arguments[1]);
  OK(hipInit(0));
  test_devices();
  test_memory_figures();
  test_streams_and_events();
  test_kernel(arguments[2]);
  puts("passed");
  return 0;
}
