/* Where the state of the SIMULATED hardware comes from. On a node simulated/nvml.py prints it, which is run when a file has
 * changed that it reads. In a container, where there is no Python, a copy is mounted as one of the driver's firmware files.
 */
#define _GNU_SOURCE
#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "/usr/lib/gpunode-lab/nvml"
#define FIRMWARE "/lib/firmware/nvidia"
#define COPY "gsp_gpunode_lab.bin"

enum { MOST_TEXT = 1 << 18 };

extern char **environ;
/* simulated/nvml.py has the same list. */
static const char *const sources[] = {
    "/etc/gpunode-lab/hardware.json",
    "/etc/gpunode-lab/faults.json",
    "/run/gpunode-lab/module.json",
    "/run/gpunode-lab/gpus.json",
    "/var/lib/gpunode-lab/gpus.json",
    "/sys/module/nvidia/version",
};
static char text[MOST_TEXT];

static const char *at(char *place, size_t size, const char *path)
{
    const char *root = getenv("GPUNODE_LAB_ROOT");

    snprintf(place, size, "%s%s", root != NULL ? root : "", path);
    return place;
}

int machine_has(const char *path)
{
    char place[4096];

    return access(at(place, sizeof place, path), F_OK) == 0;
}

int machine_is_node(void) { return machine_has(PROGRAM) && machine_has("/run/gpunode-lab"); }

/* Write when each of the sources changed, as the table says it. */
static void stamp(char *to, size_t size)
{
    char place[4096];
    struct stat found;
    size_t used = 0;

    to[0] = 0;
    for (size_t each = 0; each < sizeof sources / sizeof *sources && used < size; each++) {
        if (stat(at(place, sizeof place, sources[each]), &found) != 0)
            memset(&found, 0, sizeof found);
        used += (size_t)snprintf(to + used, size - used, "%lld.%09ld:%lld ", (long long)found.st_mtim.tv_sec,
                                 found.st_mtim.tv_nsec, (long long)found.st_size);
    }
}

/* A signal of the program interrupts neither this nor the wait for the process that prints. */
static void read_all(int file)
{
    size_t used = 0;
    ssize_t got;

    while (used < sizeof text - 1) {
        got = read(file, text + used, sizeof text - 1 - used);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    text[used] = 0;
    close(file);
}

/* Read the copy of the table, of whatever version the driver is. */
static int read_copy(void)
{
    char place[4096], path[8192];
    DIR *folder = opendir(at(place, sizeof place, FIRMWARE));
    struct dirent *entry;
    int file = -1;

    while (folder != NULL && file < 0 && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "%s/%s/" COPY, place, entry->d_name);
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (folder != NULL)
        closedir(folder);
    if (file < 0)
        return -1;
    read_all(file);
    return 0;
}

static int run(const char *const *words)
{
    char program[4096];
    const char *arguments[16] = {"/usr/bin/python3", "-ISB", at(program, sizeof program, PROGRAM)};
    posix_spawn_file_actions_t actions;
    int ends[2], status, failed;
    pid_t child;

    for (int each = 0; each < 12 && words[each] != NULL; each++)
        arguments[3 + each] = words[each];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    failed = posix_spawn(&child, arguments[0], &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        return -1;
    }
    read_all(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

int state_change(const char *const *words, int *value)
{
    int result;

    if (!machine_is_node())
        return 4;
    if (run(words) != 0)
        return 999;
    result = state_read(text, 0, value);
    return state.complete ? result : 999;
}

int state_refresh(void)
{
    static const char *const words[] = {"table", NULL};
    char now[sizeof state.sources];

    if (!machine_is_node()) {
        /* It is overwritten in place: until it is complete, look again. */
        for (int tries = 0; tries < 50; tries++, usleep(10000)) {
            if (read_copy() != 0)
                return -1;
            state_read(text, 1, NULL);
            if (state.complete)
                break;
        }
        return state.complete && machine_has("/dev/nvidiactl") ? 0 : -1;
    }
    stamp(now, sizeof now);
    if (state.complete && strcmp(now, state.sources) == 0)
        return 0;
    if (read_copy() == 0) {
        state_read(text, 0, NULL);
        if (state.complete && strcmp(now, state.sources) == 0)
            return 0;
    }
    if (run(words) != 0)
        return -1;
    state_read(text, 0, NULL);
    return state.complete ? 0 : -1;
}
