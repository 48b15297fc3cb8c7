/* The C interface of libflash_attn_rocm, for hosts other than torch and for Python's ctypes. Thread safe.
 *
 * Functions that return int give 0 or a length on success and -1 on failure; fa_rocm_last_error() has the text. */
#ifndef FLASH_ATTN_ROCM_C_API_H
#define FLASH_ATTN_ROCM_C_API_H

#include <stddef.h>

#ifdef _WIN32
#define FA_ROCM_EXPORT __declspec(dllexport)
#else
#define FA_ROCM_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

FA_ROCM_EXPORT const char* fa_rocm_version(void);

/* Text of this thread's last failure; empty if there was none. Valid until the thread's next failing call. */
FA_ROCM_EXPORT const char* fa_rocm_last_error(void);

/* Path of the HIP runtime to use instead of searching for one; before the runtime's first use. NULL and "" fail. */
FA_ROCM_EXPORT int fa_rocm_use_hip_library(const char* path);

/* Adds a directory that holds <gfx>/kernels.json; directories added earlier win. NULL and "" fail. */
FA_ROCM_EXPORT int fa_rocm_add_kernel_path(const char* directory);

/* Replaces all directories, the first one winning; calls in progress keep the kernels they have chosen. */
FA_ROCM_EXPORT int fa_rocm_set_kernel_paths(const char* const* directories, size_t count);

/* JSON with the HIP runtime, the devices and their kernels. Returns the length without the terminating NUL, like
 * snprintf: when it is not below `size`, the text was cut. `buffer` may be NULL when `size` is 0. */
FA_ROCM_EXPORT int fa_rocm_describe(char* buffer, size_t size);

/* JSON object from kernel name to launches in this process; returns as fa_rocm_describe does. */
FA_ROCM_EXPORT int fa_rocm_launch_counts(char* buffer, size_t size);

/* Into how many parts keys are cut when the caller leaves it to the library (num_splits 0): 1 to 128. Pure. seqlen_k
 * is that of the longest sequence, tile_m the query rows of one workgroup. */
FA_ROCM_EXPORT int fa_rocm_choose_num_splits(
    int batch, int heads, int seqlen_q, int seqlen_k, int tile_m, int multiprocessors);

/* What is known of a GPU's last-level cache, for devices used later: its size where the driver does not say it, and
 * whether heads are launched in groups whose keys and values fit it. */
FA_ROCM_EXPORT int fa_rocm_set_last_level_cache(const char* gfx, long long bytes, int head_grouping);

/* Reads CK_TILE_FMHA_DISABLE_HEAD_GROUPING, CK_TILE_FMHA_HEAD_GROUP_LOG and CK_TILE_FMHA_LLC_CACHE_MB again, which are
 * otherwise read once, at the first launch. */
FA_ROCM_EXPORT int fa_rocm_read_environment(void);

/* How many heads of keys and values one launch takes, heads_k for all of them. Pure. head_bytes: keys and values of one
 * head; query_tiles: workgroups that read them; cache_bytes: last-level cache, 0 for none. */
FA_ROCM_EXPORT int fa_rocm_choose_kv_heads(int heads_k, long long head_bytes, int query_tiles, long long cache_bytes);

/* KiB of the last-level cache of a GPU in a directory like /sys/class/kfd/kfd/topology/nodes; 0 where it says none. */
FA_ROCM_EXPORT int fa_rocm_kfd_cache_kib(const char* nodes, int domain, int bus, int device, const char* gfx);

#ifdef __cplusplus
}
#endif

#endif
