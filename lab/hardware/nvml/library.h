/* What the files of the SIMULATED libnvidia-ml share. */
#ifndef GPUNODE_LAB_LIBRARY_H
#define GPUNODE_LAB_LIBRARY_H

#include "nvml.h"
#include "state.h"

#include <stddef.h>

struct answer {
    nvmlReturn_t code;
};

struct answer library_enter(void);
void library_leave(struct answer *answer);

/* Begin a function: one thread at a time, on the hardware as it is now; UNINITIALIZED before nvmlInit. */
#define ENTER                                                                 \
    struct answer answer __attribute__((cleanup(library_leave))) = library_enter(); \
    if (answer.code != NVML_SUCCESS)                                          \
    return answer.code

/* Return with a code where a condition does not hold. */
#define REQUIRE(condition, otherwise) \
    if (!(condition))                 \
    return otherwise

/* Begin a function on a whole GPU whose answer goes to `to`. */
#define ENTER_GPU(to)                                   \
    struct gpu *gpu;                                    \
    ENTER;                                              \
    REQUIRE((to) != NULL, NVML_ERROR_INVALID_ARGUMENT); \
    answer.code = whole_gpu(device, &gpu);              \
    REQUIRE(answer.code == NVML_SUCCESS, answer.code)

/* Begin a function on a GPU in MIG mode. */
#define ENTER_MIG(to) \
    ENTER_GPU(to);    \
    REQUIRE(gpu->mig, NVML_ERROR_NOT_SUPPORTED)

/* Begin a function on a GPU instance. */
#define ENTER_INSTANCE(to)                              \
    ENTER;                                              \
    REQUIRE((to) != NULL, NVML_ERROR_INVALID_ARGUMENT); \
    answer.code = known_instance(instance);             \
    REQUIRE(answer.code == NVML_SUCCESS, answer.code)

nvmlReturn_t whole_gpu(nvmlDevice_t device, struct gpu **to);
nvmlReturn_t known_instance(nvmlGpuInstance_t instance);
/* Whether a handle is one of the items of an array, and not something within one. */
int is_item(const void *handle, const void *first, size_t count, size_t size);
struct compute *mig_device(nvmlDevice_t device);
/* Have the machine change something, for root (state.h). */
nvmlReturn_t library_change(const char *const *words, int *value);
nvmlReturn_t copied(const char *text, char *to, unsigned int length);
unsigned int mig_device_index(const struct compute *of);
const struct profile *profile_of(const struct instance *instance);
const struct compute_profile *compute_profile_of(const struct compute *compute);

#endif
