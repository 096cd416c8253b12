/* The SIMULATED libnvidia-ml: GPUs, and what is the same of GPUs and of MIG devices. */
#include "library.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int is_item(const void *handle, const void *first, size_t count, size_t size)
{
    size_t offset = (size_t)((uintptr_t)handle - (uintptr_t)first);

    return offset < count * size && offset % size == 0;
}

/* Return the MIG device of a handle, as long as it exists; NULL: it is none. */
struct compute *mig_device(nvmlDevice_t device)
{
    struct compute *compute = (struct compute *)device;

    for (struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++)
        for (struct instance *instance = gpu->instance; instance < gpu->instance + MOST_INSTANCES; instance++)
            if (is_item(compute, instance->compute, MOST_COMPUTE, sizeof *compute))
                return compute->exists ? compute : NULL;
    return NULL;
}

static struct gpu *gpu_of(nvmlDevice_t device)
{
    for (struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++)
        if (gpu == device)
            return gpu;
    return NULL;
}

nvmlReturn_t whole_gpu(nvmlDevice_t device, struct gpu **to)
{
    *to = gpu_of(device);
    REQUIRE(*to != NULL, NVML_ERROR_INVALID_ARGUMENT);
    return (*to)->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

/* Find the GPU of a handle, and its MIG device where it is one's; `device` is NULL of a GPU. */
static nvmlReturn_t gpu_or_mig_device(nvmlDevice_t handle, struct gpu **gpu, struct compute **device)
{
    *device = mig_device(handle);
    return whole_gpu(*device != NULL ? (*device)->of->of : handle, gpu);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER;
    REQUIRE(device != NULL && index < state.gpus, NVML_ERROR_INVALID_ARGUMENT);
    *device = &state.gpu[index];
    return whole_gpu(*device, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Looking for a UUID, NVML fails as soon as any GPU is lost. */
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    ENTER;
    REQUIRE(uuid != NULL && device != NULL, NVML_ERROR_INVALID_ARGUMENT);
    for (struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++)
        REQUIRE(!gpu->lost, NVML_ERROR_UNKNOWN);
    for (struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++) {
        *device = gpu;
        REQUIRE(strcmp(gpu->uuid, uuid) != 0, NVML_SUCCESS);
        for (struct instance *of = gpu->instance; of < gpu->instance + MOST_INSTANCES; of++)
            for (struct compute *each = of->compute; each < of->compute + MOST_COMPUTE; each++) {
                *device = (nvmlDevice_t)each;
                REQUIRE(!each->exists || strcmp(each->uuid, uuid) != 0, NVML_SUCCESS);
            }
    }
    *device = NULL;
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain, bus, slot, of_domain, of_bus, of_slot;
    ENTER;
    REQUIRE(bus_id != NULL && device != NULL, NVML_ERROR_INVALID_ARGUMENT);
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        REQUIRE(sscanf(bus_id, "%x:%x", &bus, &slot) == 2, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++)
        if (sscanf(gpu->bus_id, "%x:%x:%x", &of_domain, &of_bus, &of_slot) == 3 && of_domain == domain && of_bus == bus
            && of_slot == slot)
            return whole_gpu(*device = gpu, device);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct compute *mig;
    struct gpu *gpu;
    char whole[160];
    ENTER;
    answer.code = gpu_or_mig_device(device, &gpu, &mig);
    REQUIRE(answer.code == NVML_SUCCESS, answer.code);
    if (mig == NULL)
        return copied(gpu->name, name, length);
    REQUIRE(compute_profile_of(mig) != NULL, NVML_ERROR_UNKNOWN);
    snprintf(whole, sizeof whole, "%s MIG %s", gpu->name, compute_profile_of(mig)->name);
    return copied(whole, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct compute *mig;
    struct gpu *gpu;
    ENTER;
    answer.code = gpu_or_mig_device(device, &gpu, &mig);
    REQUIRE(answer.code == NVML_SUCCESS, answer.code);
    return copied(mig != NULL ? mig->uuid : gpu->uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct compute *mig;
    struct gpu *gpu;
    ENTER;
    REQUIRE(index != NULL, NVML_ERROR_INVALID_ARGUMENT);
    answer.code = gpu_or_mig_device(device, &gpu, &mig);
    REQUIRE(answer.code == NVML_SUCCESS, answer.code);
    *index = mig != NULL ? mig_device_index(mig) : gpu->index;
    return NVML_SUCCESS;
}

static unsigned long long bytes(unsigned int mebibytes) { return (unsigned long long)mebibytes << 20; }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct compute *mig;
    struct gpu *gpu;
    ENTER;
    REQUIRE(memory != NULL, NVML_ERROR_INVALID_ARGUMENT);
    answer.code = gpu_or_mig_device(device, &gpu, &mig);
    REQUIRE(answer.code == NVML_SUCCESS, answer.code);
    REQUIRE(mig == NULL || profile_of(mig->of) != NULL, NVML_ERROR_UNKNOWN);
    memory->total = memory->free = bytes(mig != NULL ? profile_of(mig->of)->memory : gpu->memory);
    memory->used = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t first;
    nvmlReturn_t result;

    REQUIRE(memory != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(memory->version == STRUCT_VERSION(nvmlMemory_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    result = nvmlDeviceGetMemoryInfo(device, &first);
    REQUIRE(result == NVML_SUCCESS, result);
    memory->total = first.total;
    memory->free = first.free;
    memory->used = memory->reserved = 0;
    return NVML_SUCCESS;
}

static void pci(const struct gpu *gpu, nvmlPciInfo_t *to)
{
    memset(to, 0, sizeof *to);
    sscanf(gpu->bus_id, "%x:%x:%x", &to->domain, &to->bus, &to->device);
    to->pciDeviceId = gpu->pci_id;
    to->pciSubSystemId = gpu->subsystem;
    snprintf(to->busIdLegacy, sizeof to->busIdLegacy, "%s", gpu->bus_id + 4);
    snprintf(to->busId, sizeof to->busId, "%s", gpu->bus_id);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *to)
{
    ENTER_GPU(to);
    pci(gpu, to);
    return NVML_SUCCESS;
}

/* Both older layouts end before the longer bus id. */
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, void *to)
{
    nvmlPciInfo_t whole;
    ENTER_GPU(to);
    pci(gpu, &whole);
    memcpy(to, &whole, sizeof whole - sizeof whole.busId);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, void *to) { return nvmlDeviceGetPciInfo_v2(device, to); }

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER_GPU(major);
    REQUIRE(minor != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)gpu->major;
    *minor = (int)gpu->minor_capability;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *to)
{
    ENTER_GPU(to);
    memset(to, 0, sizeof *to);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *to)
{
    unsigned int version;
    ENTER_GPU(to);
    version = to->version;
    if (version == STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2))
        memset(to, 0, sizeof(nvmlGpuFabricInfo_v2_t));
    else if (version == STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3))
        memset(to, 0, sizeof *to);
    else
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    to->version = version;
    return NVML_SUCCESS;
}

/* Functions whose answer is one number of a GPU. */
#define NUMBER(function, type, field)                      \
    nvmlReturn_t function(nvmlDevice_t device, type *to)   \
    {                                                      \
        ENTER_GPU(to);                                     \
        *to = (type)gpu->field;                            \
        return NVML_SUCCESS;                               \
    }
/* Functions whose answer is a text of a GPU. */
#define TEXT(function, field)                                                   \
    nvmlReturn_t function(nvmlDevice_t device, char *to, unsigned int length)   \
    {                                                                           \
        ENTER_GPU(to);                                                          \
        return copied(gpu->field, to, length);                                  \
    }

NUMBER(nvmlDeviceGetMinorNumber, unsigned int, minor)
NUMBER(nvmlDeviceGetArchitecture, unsigned int, architecture)
NUMBER(nvmlDeviceGetBrand, unsigned int, brand)
NUMBER(nvmlDeviceGetComputeMode, unsigned int, compute_mode)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned int, persistence)
TEXT(nvmlDeviceGetSerial, serial)
TEXT(nvmlDeviceGetVbiosVersion, vbios)

static nvmlReturn_t set(nvmlDevice_t device, const char *what, unsigned int value)
{
    char of[16], to[16];
    const char *const words[] = {what, of, to, NULL};
    ENTER_GPU(what);
    snprintf(of, sizeof of, "%u", gpu->index);
    snprintf(to, sizeof to, "%u", value);
    return library_change(words, NULL);
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode) { return set(device, "compute-mode", mode); }

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    return set(device, "persistence-mode", mode);
}
