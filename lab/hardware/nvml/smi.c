/* The first part of the SIMULATED nvidia-smi; a zip archive of Python follows it in the file, and is the program on a node.
 * In a container, where there is no Python, this part answers -L by itself.
 */
#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

/* Codes with which NVIDIA's own ends. */
enum { INVALID_ARGUMENT = 2, NO_DEVICES = 6, DRIVER_NOT_LOADED = 9, NO_LIBRARY = 12, GPU_IS_LOST = 15 };

static void become_python(char **arguments, int count)
{
    static char self[4096];
    char **words = calloc((size_t)count + 3, sizeof *words);

    if (words == NULL)
        return;
    /* readlink does not end what it writes with a zero: those of the array do. */
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        strcpy(self, "/usr/bin/nvidia-smi");
    words[0] = PYTHON;
    words[1] = "-ISB";
    words[2] = self;
    memcpy(words + 3, arguments + 1, (size_t)(count - 1) * sizeof *words);
    execv(PYTHON, words);
}

static int has_library(void)
{
    return machine_has("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1") || machine_has("/usr/lib64/libnvidia-ml.so.1")
           || machine_has("/usr/lib/libnvidia-ml.so.1");
}

static void list_devices(const struct gpu *gpu)
{
    unsigned int number = 0;

    for (const struct instance *of = gpu->instance; of < gpu->instance + MOST_INSTANCES; of++)
        for (const struct compute *each = of->compute; each < of->compute + MOST_COMPUTE; each++)
            if (each->exists) {
                const struct compute_profile *part =
                    compute_profile_by_number(profile_by_number(gpu, of->number), each->number);

                printf("  MIG %-12sDevice %2u: (UUID: %s)\n", part != NULL ? part->name : "?", number++, each->uuid);
            }
}

static int list(void)
{
    for (const struct gpu *gpu = state.gpu; gpu < state.gpu + state.gpus; gpu++) {
        if (gpu->lost) {
            puts("Unable to determine the device handle for gpu: GPU is lost.  Reboot the system to recover this GPU\n\n");
            return GPU_IS_LOST;
        }
        printf("GPU %u: %s (UUID: %s)\n", gpu->index, gpu->name, gpu->uuid);
        list_devices(gpu);
    }
    if (state.gpus == 0)
        puts("No devices found.");
    return 0;
}

int main(int count, char **arguments)
{
    if (access(PYTHON, X_OK) == 0 && machine_is_node())
        become_python(arguments, count);
    if (!has_library()) {
        puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
             "Driver is properly installed and present in your system.\n"
             "Please also try adding directory that contains libnvidia-ml.so to your system PATH.");
        return NO_LIBRARY;
    }
    if (state_refresh() != 0) {
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
             "NVIDIA driver is installed and running.\n");
        return DRIVER_NOT_LOADED;
    }
    while (state.hang)
        pause();
    if (count == 2 && (strcmp(arguments[1], "-L") == 0 || strcmp(arguments[1], "--list-gpus") == 0))
        return list();
    puts("SIMULATED nvidia-smi of gpunode's lab: in a container it answers -L alone.");
    return INVALID_ARGUMENT;
}
