/* The SIMULATED libnvidia-ml: its start and end, its version, and the system's. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static unsigned int users;

/* Return the version in the name of the library's file: libnvidia-ml.so.580.95.05. Empty: it has none. */
static const char *own_version(void)
{
    static char version[64];
    Dl_info found;
    char *path = NULL, *end;

    if (version[0] == 0 && dladdr((void *)own_version, &found) != 0 && (path = realpath(found.dli_fname, NULL)) != NULL
        && (end = strstr(strrchr(path, '/'), ".so.")) != NULL && strchr(end + 4, '.') != NULL)
        snprintf(version, sizeof version, "%s", end + 4);
    free(path);
    return version;
}

/* Wait for as long as the driver hangs: a process that waits for a wedged GPU is in the kernel. */
static nvmlReturn_t reach_driver(void)
{
    int result;

    while ((result = state_refresh()) == 0 && state.hang)
        usleep(200000);
    if (result != 0 || state.driver[0] == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (own_version()[0] != 0 && strcmp(own_version(), state.driver) != 0)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    return NVML_SUCCESS;
}

struct answer library_enter(void)
{
    struct answer answer = {NVML_ERROR_UNINITIALIZED};

    pthread_mutex_lock(&one_at_a_time);
    if (users > 0)
        answer.code = reach_driver();
    return answer;
}

void library_leave(struct answer *answer)
{
    (void)answer;
    pthread_mutex_unlock(&one_at_a_time);
}

nvmlReturn_t library_change(const char *const *words, int *value)
{
    int ignored;

    REQUIRE(geteuid() == 0, NVML_ERROR_NO_PERMISSION);
    return (nvmlReturn_t)state_change(words, value != NULL ? value : &ignored);
}

nvmlReturn_t copied(const char *text, char *to, unsigned int length)
{
    REQUIRE(to != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(to, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    struct answer answer __attribute__((cleanup(library_leave))) = {NVML_SUCCESS};

    (void)flags;
    pthread_mutex_lock(&one_at_a_time);
    answer.code = reach_driver();
    if (answer.code == NVML_SUCCESS)
        users++;
    return answer.code;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

/* As 550.163.01 does, success even after an nvmlInit that failed. */
nvmlReturn_t nvmlShutdown(void)
{
    struct answer answer __attribute__((cleanup(library_leave))) = {NVML_SUCCESS};

    pthread_mutex_lock(&one_at_a_time);
    if (users > 0)
        users--;
    return answer.code;
}

/* The words are those of 550.163.01. */
const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "vGPU ECC not supported", "Insufficient Resources", "Invalid Frequency", "Argument version mismatch",
        "Requested functionality has been deprecated", "System is not in ready state", "No supported GPUs were found",
        "Resource not in correct state to perform requested operation",
    };

    return (size_t)result < sizeof words / sizeof *words ? words[result] : "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER;
    return copied(state.driver, version, length);
}

/* The number before the driver's version is that of the API: 12 in 550.163.01, 13 from 580 on. It needs no nvmlInit. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    const char *own = own_version()[0] != 0 ? own_version() : state.driver;
    char whole[96];

    snprintf(whole, sizeof whole, "%d.%s", atoi(own) < 580 ? 12 : 13, own);
    return copied(whole, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER;
    REQUIRE(version != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *version = state.cuda;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER;
    REQUIRE(count != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *count = state.gpus;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

/* An event set is no more than its own address: nothing ever happens on these GPUs. */
struct events {
    int unused;
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    ENTER;
    REQUIRE(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    ENTER;
    REQUIRE(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds)
{
    {
        ENTER;
        REQUIRE(set != NULL && data != NULL, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned int waited = 0; waited < milliseconds; waited += 10)
        usleep(10000);
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds)
{
    return nvmlEventSetWait_v2(set, data, milliseconds);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    struct gpu *gpu;
    ENTER;
    REQUIRE(types != NULL, NVML_ERROR_INVALID_ARGUMENT);
    /* Single and double bit ECC errors, power state, critical Xid, clocks. */
    *types = 0x1f;
    return whole_gpu(device, &gpu);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    struct gpu *gpu;
    ENTER;
    REQUIRE(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE((types & ~0x1fULL) == 0, NVML_ERROR_NOT_SUPPORTED);
    return whole_gpu(device, &gpu);
}
