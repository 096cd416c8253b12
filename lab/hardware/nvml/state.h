/* The state of the SIMULATED hardware, as simulated/nvml.py prints it: one line for each object, its fields divided by tabs. */
#ifndef GPUNODE_LAB_STATE_H
#define GPUNODE_LAB_STATE_H

enum { MOST_GPUS = 16, MOST_INSTANCES = 15, MOST_COMPUTE = 8, MOST_PROFILES = 16, MOST_SIZES = 5, MOST_STARTS = 8 };

/* A compute instance, which programs also know as a MIG device. */
struct compute {
    struct instance *of;
    int exists;
    unsigned int id, number, start, size;
    char uuid[80];
};

/* A GPU instance. */
struct instance {
    struct gpu *of;
    int exists;
    unsigned int id, number, start;
    struct compute compute[MOST_COMPUTE];
};

struct compute_profile {
    unsigned int number, slices, most, free, sm, starts, start[MOST_STARTS];
    char name[32];
};

/* `number` is NVML's own of the profile, `id` is that of nvidia-smi. */
struct profile {
    unsigned int number, id, slices, most, free, sm, copy, decoder, encoder, jpeg, ofa, memory, size, starts;
    unsigned int start[MOST_STARTS], sizes;
    char name[32];
    struct compute_profile compute[MOST_SIZES];
};

struct gpu {
    unsigned int index, minor, pci_id, subsystem, memory, major, minor_capability, architecture, brand, lost;
    unsigned int mig_capable, mig, mig_pending, compute_mode, persistence, most_devices, profiles;
    char uuid[80], name[96], bus_id[32], serial[32], vbios[32];
    struct profile profile[MOST_PROFILES];
    struct instance instance[MOST_INSTANCES];
};

struct state {
    char driver[80], sources[512];
    int cuda, hang, complete;
    unsigned int gpus;
    struct gpu gpu[MOST_GPUS];
};

extern struct state state;

/* Bring `state` up to date. Return 0, or -1 where nothing answers for the hardware. */
int state_refresh(void);

/* Have the machine change something: `words` ends with NULL. Return NVML's code; `value` is what the change returned. */
int state_change(const char *const *words, int *value);

/* Take a table for the state; return the code of its line `result`, and what that says of the value. */
int state_read(char *text, int in_container, int *value);

/* Whether a file of the machine exists, below GPUNODE_LAB_ROOT. */
int machine_has(const char *path);

/* Whether this runs on the machine itself, not in a container on it. */
int machine_is_node(void);

const struct profile *profile_by_number(const struct gpu *gpu, unsigned int number);
const struct compute_profile *compute_profile_by_number(const struct profile *profile, unsigned int number);

#endif
