/* The SIMULATED libnvidia-ml: MIG mode, profiles, GPU instances, compute instances and MIG devices. */
#include "library.h"

#include <stdio.h>
#include <string.h>

const struct profile *profile_of(const struct instance *instance)
{
    return profile_by_number(instance->of, instance->number);
}

const struct compute_profile *compute_profile_of(const struct compute *compute)
{
    return compute_profile_by_number(profile_of(compute->of), compute->number);
}

nvmlReturn_t known_instance(nvmlGpuInstance_t instance)
{
    for (struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++)
        if (is_item(instance, gpu->instance, MOST_INSTANCES, sizeof *instance) && instance->exists)
            return gpu->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    return NVML_ERROR_INVALID_ARGUMENT;
}

static const struct profile *profile_by_id(const struct gpu *gpu, unsigned int id)
{
    for (unsigned int each = 0; each < gpu->profiles; each++)
        if (gpu->profile[each].id == id)
            return &gpu->profile[each];
    return NULL;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    ENTER_GPU(current);
    REQUIRE(pending != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig_capable, NVML_ERROR_NOT_SUPPORTED);
    *current = gpu->mig;
    *pending = gpu->mig_pending;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
    char of[16], to[16];
    const char *const words[] = {"mig-mode", of, to, NULL};
    int status = 0;
    ENTER_GPU(activation);
    REQUIRE(gpu->mig_capable, NVML_ERROR_NOT_SUPPORTED);
    snprintf(of, sizeof of, "%u", gpu->index);
    snprintf(to, sizeof to, "%u", mode);
    answer.code = library_change(words, &status);
    *activation = (nvmlReturn_t)status;
    return answer.code;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    ENTER_GPU(count);
    *count = gpu->mig ? gpu->most_devices : 0;
    return NVML_SUCCESS;
}

/* MIG devices are counted in the order of the ids of both kinds of instances. */
static struct compute *device_by_index(struct gpu *gpu, unsigned int index)
{
    for (struct instance *of = gpu->instance; of < gpu->instance + MOST_INSTANCES; of++)
        for (struct compute *each = of->compute; each < of->compute + MOST_COMPUTE; each++)
            if (each->exists && index-- == 0)
                return each;
    return NULL;
}

unsigned int mig_device_index(const struct compute *of)
{
    unsigned int index = 0;

    while (device_by_index(of->of->of, index) != of)
        index++;
    return index;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *to)
{
    ENTER_MIG(to);
    REQUIRE(index < gpu->most_devices, NVML_ERROR_INVALID_ARGUMENT);
    *to = (nvmlDevice_t)device_by_index(gpu, index);
    return *to != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    struct gpu *gpu;
    ENTER;
    REQUIRE(is != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *is = mig_device(device) != NULL;
    return *is ? NVML_SUCCESS : whole_gpu(device, &gpu);
}

/* Begin a function on a MIG device. */
#define ENTER_DEVICE(to)                                \
    struct compute *compute;                            \
    ENTER;                                              \
    REQUIRE((to) != NULL, NVML_ERROR_INVALID_ARGUMENT); \
    compute = mig_device(device);                       \
    REQUIRE(compute != NULL, NVML_ERROR_INVALID_ARGUMENT)

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *to)
{
    ENTER_DEVICE(to);
    *to = compute->of->of;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *to)
{
    ENTER_DEVICE(to);
    *to = compute->of->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *to)
{
    ENTER_DEVICE(to);
    *to = compute->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *to)
{
    const struct compute_profile *part;
    const struct profile *of;
    ENTER_DEVICE(to);
    of = profile_of(compute->of);
    part = compute_profile_of(compute);
    REQUIRE(of != NULL && part != NULL, NVML_ERROR_UNKNOWN);
    *to = (nvmlDeviceAttributes_t){part->sm, of->copy, of->decoder, of->encoder, of->jpeg, of->ofa, of->slices, part->slices, of->memory};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *to)
{
    return nvmlDeviceGetAttributes_v2(device, to);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_t *to)
{
    const struct profile *of;
    ENTER_GPU(to);
    of = profile_by_number(gpu, number);
    REQUIRE(of != NULL, NVML_ERROR_NOT_SUPPORTED);
    *to = (nvmlGpuInstanceProfileInfo_t){of->id, 0, of->slices, of->most, of->sm, of->copy, of->decoder, of->encoder, of->jpeg, of->ofa, of->memory};
    return NVML_SUCCESS;
}

/* Versions 2 and 3 of the structure, by what its first field says. */
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_v2_t *to)
{
    const struct profile *of;
    ENTER_GPU(to);
    of = profile_by_number(gpu, number);
    REQUIRE(of != NULL, NVML_ERROR_NOT_SUPPORTED);
    if (to->version == STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        *to = (nvmlGpuInstanceProfileInfo_v2_t){to->version, of->id, 0, of->slices, of->most, of->sm, of->copy, of->decoder, of->encoder, of->jpeg, of->ofa, of->memory, ""};
        snprintf(to->name, sizeof to->name, "MIG %s", of->name);
        return NVML_SUCCESS;
    }
    if (to->version == STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
        nvmlGpuInstanceProfileInfo_v3_t *third = (void *)to;

        *third = (nvmlGpuInstanceProfileInfo_v3_t){to->version, of->id, of->slices, of->most, of->sm, of->copy, of->decoder, of->encoder, of->jpeg, of->ofa, of->memory, "", 0};
        snprintf(third->name, sizeof third->name, "MIG %s", of->name);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *places, unsigned int *count)
{
    const struct profile *of;
    unsigned int room;
    ENTER_GPU(count);
    of = profile_by_id(gpu, id);
    REQUIRE(of != NULL, NVML_ERROR_NOT_SUPPORTED);
    room = *count;
    *count = of->starts;
    REQUIRE(places != NULL, NVML_SUCCESS);
    REQUIRE(room >= of->starts, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int each = 0; each < of->starts; each++)
        places[each] = (nvmlGpuInstancePlacement_t){of->start[each], of->size};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
    const struct profile *of;
    ENTER_MIG(count);
    of = profile_by_id(gpu, id);
    REQUIRE(of != NULL, NVML_ERROR_NOT_SUPPORTED);
    *count = of->free;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *to, unsigned int *count)
{
    const struct profile *of;
    ENTER_MIG(count);
    REQUIRE(to != NULL, NVML_ERROR_INVALID_ARGUMENT);
    of = profile_by_id(gpu, id);
    REQUIRE(of != NULL, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (struct instance *each = gpu->instance; each < gpu->instance + MOST_INSTANCES; each++)
        if (each->exists && each->number == of->number)
            to[(*count)++] = each;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *to)
{
    ENTER_MIG(to);
    REQUIRE(id < MOST_INSTANCES && gpu->instance[id].exists, NVML_ERROR_NOT_FOUND);
    *to = &gpu->instance[id];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *to)
{
    const struct profile *of;
    ENTER_INSTANCE(to);
    of = profile_of(instance);
    REQUIRE(of != NULL, NVML_ERROR_UNKNOWN);
    *to = (nvmlGpuInstanceInfo_t){instance->of, instance->id, of->id, {instance->start, of->size}};
    return NVML_SUCCESS;
}
