/* The state of the SIMULATED hardware, as it is read from the table. Everything has its place for good, for handles refer to it. */
#define _GNU_SOURCE
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 32, FIRST_CAPABILITY = 3, CAPABILITIES_OF_AN_INSTANCE = 9 };

struct state state;

static unsigned int number(const char *field) { return (unsigned int)strtoul(field, NULL, 0); }

static void copy(char *to, size_t size, const char *field) { snprintf(to, size, "%s", field); }

static unsigned int numbers(unsigned int *to, const char *field)
{
    unsigned int count = 0;

    for (char *rest; *field != 0 && count < MOST_STARTS; field = *rest == ',' ? rest + 1 : rest)
        to[count++] = (unsigned int)strtoul(field, &rest, 10);
    return count;
}

static void read_gpu(char **field, struct gpu *gpu)
{
    unsigned int *const values[] = {
        &gpu->minor, &gpu->pci_id, &gpu->subsystem, &gpu->memory, &gpu->major, &gpu->minor_capability, &gpu->architecture,
        &gpu->brand, &gpu->lost, &gpu->mig_capable, &gpu->mig, &gpu->mig_pending, &gpu->compute_mode, &gpu->persistence,
        &gpu->most_devices,
    };

    copy(gpu->uuid, sizeof gpu->uuid, field[2]);
    copy(gpu->name, sizeof gpu->name, field[3]);
    copy(gpu->bus_id, sizeof gpu->bus_id, field[4]);
    copy(gpu->serial, sizeof gpu->serial, field[5]);
    copy(gpu->vbios, sizeof gpu->vbios, field[6]);
    for (size_t each = 0; each < sizeof values / sizeof *values; each++)
        *values[each] = number(field[7 + each]);
    gpu->index = state.gpus++;
}

static void read_profile(char **field, struct gpu *gpu)
{
    struct profile *profile = &gpu->profile[gpu->profiles];
    unsigned int *const values[] = {
        &profile->number, &profile->id, &profile->slices, &profile->most, &profile->free, &profile->sm, &profile->copy,
        &profile->decoder, &profile->encoder, &profile->jpeg, &profile->ofa, &profile->memory, &profile->size,
    };

    if (gpu->profiles == MOST_PROFILES)
        return;
    for (size_t each = 0; each < sizeof values / sizeof *values; each++)
        *values[each] = number(field[2 + each]);
    profile->starts = numbers(profile->start, field[15]);
    copy(profile->name, sizeof profile->name, field[16]);
    profile->sizes = 0;
    gpu->profiles++;
}

static void read_compute_profile(char **field, struct gpu *gpu)
{
    struct profile *profile = (struct profile *)profile_by_number(gpu, number(field[2]));
    struct compute_profile *of;

    if (profile == NULL || profile->sizes == MOST_SIZES)
        return;
    of = &profile->compute[profile->sizes++];
    of->number = number(field[3]);
    of->slices = number(field[4]);
    of->most = number(field[5]);
    of->sm = number(field[6]);
    of->starts = numbers(of->start, field[7]);
    copy(of->name, sizeof of->name, field[8]);
}

static void read_instance(char **field, struct gpu *gpu)
{
    unsigned int id = number(field[2]);

    if (id >= MOST_INSTANCES)
        return;
    gpu->instance[id].of = gpu;
    gpu->instance[id].exists = 1;
    gpu->instance[id].id = id;
    gpu->instance[id].number = number(field[3]);
    gpu->instance[id].start = number(field[4]);
}

static void read_compute(char **field, struct gpu *gpu)
{
    unsigned int of = number(field[2]), id = number(field[3]);
    struct compute *compute;

    if (of >= MOST_INSTANCES || id >= MOST_COMPUTE)
        return;
    compute = &gpu->instance[of].compute[id];
    compute->of = &gpu->instance[of];
    compute->exists = 1;
    compute->id = id;
    compute->number = number(field[4]);
    compute->start = number(field[5]);
    compute->size = number(field[6]);
    copy(compute->uuid, sizeof compute->uuid, field[7]);
}

static int present(const char *form, unsigned int value)
{
    char path[64];

    snprintf(path, sizeof path, form, value);
    return machine_has(path);
}

/* In a container exists only what has a device node. `gpu` is that of the line before, NULL where that one has none. */
static struct gpu *read_line(char **field, struct gpu *gpu, int in_container)
{
    unsigned int capability;

    if (strcmp(field[0], "gpu") == 0) {
        if (state.gpus == MOST_GPUS || (in_container && !present("/dev/nvidia%u", number(field[7]))))
            return NULL;
        read_gpu(field, &state.gpu[state.gpus]);
        return &state.gpu[state.gpus - 1];
    }
    if (strcmp(field[0], "driver") == 0) {
        copy(state.driver, sizeof state.driver, field[1]);
        state.cuda = (int)number(field[2]);
    } else if (strcmp(field[0], "sources") == 0) {
        copy(state.sources, sizeof state.sources, field[1]);
    } else if (strcmp(field[0], "hang") == 0) {
        state.hang = 1;
    } else if (strcmp(field[0], "end") == 0) {
        state.complete = 1;
    } else if (gpu == NULL) {
        return NULL;
    } else if (strcmp(field[0], "profile") == 0) {
        read_profile(field, gpu);
    } else if (strcmp(field[0], "compute-profile") == 0) {
        read_compute_profile(field, gpu);
    } else {
        capability = FIRST_CAPABILITY + (gpu->minor * MOST_INSTANCES + number(field[2])) * CAPABILITIES_OF_AN_INSTANCE;
        if (strcmp(field[0], "compute") == 0)
            capability += 1 + number(field[3]);
        if (in_container && !present("/dev/nvidia-caps/nvidia-cap%u", capability))
            return gpu;
        if (strcmp(field[0], "instance") == 0)
            read_instance(field, gpu);
        else if (strcmp(field[0], "compute") == 0)
            read_compute(field, gpu);
    }
    return gpu;
}

/* Forget everything but what handles refer to: a handle of an instance that is gone must find that it is. */
static void forget(void)
{
    state.driver[0] = state.sources[0] = 0;
    state.cuda = state.hang = state.complete = 0;
    state.gpus = 0;
    for (struct gpu *gpu = state.gpu; gpu < state.gpu + MOST_GPUS; gpu++) {
        gpu->profiles = 0;
        for (struct instance *instance = gpu->instance; instance < gpu->instance + MOST_INSTANCES; instance++) {
            instance->exists = 0;
            for (struct compute *compute = instance->compute; compute < instance->compute + MOST_COMPUTE; compute++)
                compute->exists = 0;
        }
    }
}

int state_read(char *text, int in_container, int *value)
{
    struct gpu *gpu = NULL;
    char *line;
    int result = 0;

    forget();
    while ((line = strsep(&text, "\n")) != NULL) {
        char *field[MOST_FIELDS];
        unsigned int count = 0;

        while (count < MOST_FIELDS && (field[count] = strsep(&line, "\t")) != NULL)
            count++;
        for (; count < MOST_FIELDS; count++)
            field[count] = "";
        if (strcmp(field[0], "result") == 0) {
            result = (int)number(field[1]);
            if (value != NULL)
                *value = (int)number(field[2]);
        } else if (field[0][0] != 0) {
            gpu = read_line(field, gpu, in_container);
        }
        if (state.complete)
            break;
    }
    return result;
}

const struct profile *profile_by_number(const struct gpu *gpu, unsigned int number)
{
    for (unsigned int each = 0; each < gpu->profiles; each++)
        if (gpu->profile[each].number == number)
            return &gpu->profile[each];
    return NULL;
}

const struct compute_profile *compute_profile_by_number(const struct profile *profile, unsigned int number)
{
    for (unsigned int each = 0; profile != NULL && each < profile->sizes; each++)
        if (profile->compute[each].number == number)
            return &profile->compute[each];
    return NULL;
}
