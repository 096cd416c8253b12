/* The SIMULATED libnvidia-ml: compute instances, and how instances of both kinds come and go. */
#include "library.h"

#include <stdio.h>
#include <string.h>

/* NVML's constants of compute instance profiles. */
enum { ONE_SLICE = 0, ONE_SLICE_REV1 = 7 };

/* Begin a function on the profile of compute instances that has a number, in a GPU instance. */
#define ENTER_COMPUTE_PROFILE(to)                                            \
    const struct compute_profile *part;                                      \
    ENTER_INSTANCE(to);                                                      \
    part = compute_profile_by_number(profile_of(instance), number);          \
    REQUIRE(part != NULL, NVML_ERROR_NOT_SUPPORTED)

/* Return the profile that NVML's constant 1_SLICE, 2_SLICE ... stands for; NULL if the instance has none.
   In an instance with double memory the profile of one slice has the id 7. nvidia-mig-parted and NVIDIA's DRA driver ask
   for it by 1_SLICE (0). 1_SLICE_REV1 (7) does not stand for it as well: a program that walks the constants would count
   each of its instances twice. */
static const struct compute_profile *compute_profile_of_constant(const struct profile *of, unsigned int constant)
{
    const struct compute_profile *part = compute_profile_by_number(of, constant);
    if (constant == ONE_SLICE && part == NULL)
        return compute_profile_by_number(of, ONE_SLICE_REV1);
    return constant == ONE_SLICE_REV1 ? NULL : part;
}

#define ENTER_COMPUTE_CONSTANT(to)                                           \
    const struct compute_profile *part;                                      \
    ENTER_INSTANCE(to);                                                      \
    part = compute_profile_of_constant(profile_of(instance), number);        \
    REQUIRE(part != NULL, NVML_ERROR_NOT_SUPPORTED)

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int number, unsigned int engines, nvmlComputeInstanceProfileInfo_t *to)
{
    const struct profile *of;
    ENTER_COMPUTE_CONSTANT(to);
    REQUIRE(engines == 0, NVML_ERROR_NOT_SUPPORTED);
    of = profile_of(instance);
    *to = (nvmlComputeInstanceProfileInfo_t){
        part->number, part->slices, part->most, part->sm, of->copy, of->decoder, of->encoder, of->jpeg, of->ofa};
    return NVML_SUCCESS;
}

/* Versions 2 and 3 of the structure, by what its first field says; 3 has one field more, at the end. */
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t instance, unsigned int number, unsigned int engines, nvmlComputeInstanceProfileInfo_v2_t *to)
{
    const struct profile *of;
    unsigned int version;
    ENTER_COMPUTE_CONSTANT(to);
    REQUIRE(engines == 0, NVML_ERROR_NOT_SUPPORTED);
    of = profile_of(instance);
    version = to->version;
    if (version == STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3))
        ((nvmlComputeInstanceProfileInfo_v3_t *)to)->capabilities = 0;
    else
        REQUIRE(version == STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    *to = (nvmlComputeInstanceProfileInfo_v2_t){
        version, part->number, part->slices, part->most, part->sm, of->copy, of->decoder, of->encoder, of->jpeg, of->ofa, ""};
    snprintf(to->name, sizeof to->name, "MIG %s", part->name);
    return NVML_SUCCESS;
}

static int is_free(const struct instance *instance, unsigned int start, unsigned int size)
{
    for (const struct compute *each = instance->compute; each < instance->compute + MOST_COMPUTE; each++)
        if (each->exists && each->start < start + size && start < each->start + each->size)
            return 0;
    return 1;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    nvmlGpuInstance_t instance, unsigned int number, unsigned int *count)
{
    ENTER_COMPUTE_PROFILE(count);
    *count = 0;
    for (unsigned int each = 0; each < part->starts; each++)
        *count += (unsigned int)is_free(instance, part->start[each], part->slices);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t instance, unsigned int number, nvmlComputeInstancePlacement_t *places, unsigned int *count)
{
    unsigned int room;
    ENTER_COMPUTE_PROFILE(count);
    room = *count;
    *count = part->starts;
    REQUIRE(places != NULL, NVML_SUCCESS);
    REQUIRE(room >= part->starts, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int each = 0; each < part->starts; each++)
        places[each] = (nvmlComputeInstancePlacement_t){part->start[each], part->slices};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(
    nvmlGpuInstance_t instance, unsigned int number, nvmlComputeInstance_t *to, unsigned int *count)
{
    ENTER_COMPUTE_PROFILE(count);
    REQUIRE(to != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (struct compute *each = instance->compute; each < instance->compute + MOST_COMPUTE; each++)
        if (each->exists && each->number == part->number)
            to[(*count)++] = each;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *to)
{
    ENTER_INSTANCE(to);
    REQUIRE(id < MOST_COMPUTE && instance->compute[id].exists, NVML_ERROR_NOT_FOUND);
    *to = &instance->compute[id];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *to)
{
    ENTER;
    REQUIRE(to != NULL && mig_device((nvmlDevice_t)compute) != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *to = (nvmlComputeInstanceInfo_t){
        compute->of->of, compute->of, compute->id, compute->number, {compute->start, compute->size}};
    return NVML_SUCCESS;
}

/* The older layout ends before the place. */
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t compute, void *to)
{
    nvmlComputeInstanceInfo_t whole;
    nvmlReturn_t result;

    REQUIRE(to != NULL, NVML_ERROR_INVALID_ARGUMENT);
    result = nvmlComputeInstanceGetInfo_v2(compute, &whole);
    REQUIRE(result == NVML_SUCCESS, result);
    memcpy(to, &whole, sizeof whole - sizeof whole.placement);
    return NVML_SUCCESS;
}

/* Have the machine change something that four numbers name; -1: none. `value` is the id of what was created. */
static nvmlReturn_t change(const char *what, const struct gpu *gpu, int first, int second, int third, int *value)
{
    char numbers[4][16];
    const char *const words[] = {what, numbers[0], numbers[1], numbers[2], numbers[3], NULL};

    snprintf(numbers[0], sizeof *numbers, "%u", gpu->index);
    snprintf(numbers[1], sizeof *numbers, "%d", first);
    snprintf(numbers[2], sizeof *numbers, "%d", second);
    snprintf(numbers[3], sizeof *numbers, "%d", third);
    return library_change(words, value);
}

static nvmlReturn_t create_instance(struct gpu *gpu, unsigned int id, int start, nvmlGpuInstance_t *to)
{
    nvmlReturn_t result;
    int made;

    result = change("create-instance", gpu, (int)id, start, -1, &made);
    REQUIRE(result == NVML_SUCCESS, result);
    REQUIRE(made >= 0 && made < MOST_INSTANCES && gpu->instance[made].exists, NVML_ERROR_UNKNOWN);
    *to = &gpu->instance[made];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *to)
{
    ENTER_MIG(to);
    return create_instance(gpu, id, -1, to);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *place, nvmlGpuInstance_t *to)
{
    ENTER_MIG(to);
    REQUIRE(place != NULL && (int)place->start >= 0, NVML_ERROR_INVALID_ARGUMENT);
    return create_instance(gpu, id, (int)place->start, to);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    ENTER_INSTANCE(instance);
    return change("destroy-instance", instance->of, (int)instance->id, -1, -1, NULL);
}

static nvmlReturn_t create_compute(struct instance *instance, unsigned int number, int start, nvmlComputeInstance_t *to)
{
    nvmlReturn_t result;
    int made;

    result = change("create-compute", instance->of, (int)instance->id, (int)number, start, &made);
    REQUIRE(result == NVML_SUCCESS, result);
    REQUIRE(made >= 0 && made < MOST_COMPUTE && instance->compute[made].exists, NVML_ERROR_UNKNOWN);
    *to = &instance->compute[made];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int number, nvmlComputeInstance_t *to)
{
    ENTER_COMPUTE_PROFILE(to);
    return create_compute(instance, part->number, -1, to);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t instance, unsigned int number, const nvmlComputeInstancePlacement_t *place, nvmlComputeInstance_t *to)
{
    ENTER_COMPUTE_PROFILE(to);
    REQUIRE(place != NULL && (int)place->start >= 0, NVML_ERROR_INVALID_ARGUMENT);
    return create_compute(instance, part->number, (int)place->start, to);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    ENTER;
    REQUIRE(mig_device((nvmlDevice_t)compute) != NULL, NVML_ERROR_INVALID_ARGUMENT);
    return change("destroy-compute", compute->of->of, (int)compute->of->id, (int)compute->id, -1, NULL);
}
