/* SIMULATED libnvidia-ml of gpunode's lab: it tells what the simulated kernel does, to programs that ask by NVML.
 *
 * Names, numbers and layouts are those of NVML's public interface (nvml.h). It reads /proc/driver/nvidia at each
 * nvmlInit_v2, so that a driver that is not loaded is not there, and says that no GPU has MIG: its functions are left
 * out, as in a library that is older than MIG.
 */
#include <glob.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };
enum { MOST = 16 };

struct gpu {
    char name[96], uuid[96], address[32];
    unsigned int minor;
};
typedef struct gpu *nvmlDevice_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

static struct gpu gpus[MOST];
static unsigned int count;
static char version[80];

static void read_gpu(const char *path)
{
    char line[256];
    FILE *file = count < MOST ? fopen(path, "r") : NULL;
    struct gpu *gpu = &gpus[count];

    if (file == NULL)
        return;
    memset(gpu, 0, sizeof *gpu);
    while (fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "Model: %95[^\n]", gpu->name);
        sscanf(line, "GPU UUID: %95s", gpu->uuid);
        sscanf(line, "Bus Location: %31s", gpu->address);
        sscanf(line, "Device Minor: %u", &gpu->minor);
    }
    fclose(file);
    count++;
}

static int copied(const char *text, char *to, unsigned int length)
{
    return snprintf(to, length, "%s", text) < (int)length ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlInit_v2(void)
{
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    glob_t found;

    if (file == NULL)
        return DRIVER_NOT_LOADED;
    if (fscanf(file, "%79s", version) != 1)
        version[0] = 0;
    fclose(file);
    count = 0;
    if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0) {
        for (size_t each = 0; each < found.gl_pathc; each++)
            read_gpu(found.gl_pathv[each]);
        globfree(&found);
    }
    return SUCCESS;
}

int nvmlInit(void) { return nvmlInit_v2(); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result)
{
    switch (result) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_FOUND: return "Not Found";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned int length) { return copied(version, to, length); }

int nvmlSystemGetCudaDriverVersion(int *to)
{
    *to = 13000;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *to)
{
    *to = count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *to)
{
    if (index >= count)
        return INVALID_ARGUMENT;
    *to = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *to)
{
    for (unsigned int index = 0; index < count; index++)
        if (strcmp(gpus[index].uuid, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(index, to);
    return NOT_FOUND;
}

int nvmlDeviceGetName(nvmlDevice_t gpu, char *to, unsigned int length) { return copied(gpu->name, to, length); }

int nvmlDeviceGetUUID(nvmlDevice_t gpu, char *to, unsigned int length) { return copied(gpu->uuid, to, length); }

int nvmlDeviceGetIndex(nvmlDevice_t gpu, unsigned int *to)
{
    *to = (unsigned int)(gpu - gpus);
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned int *to)
{
    *to = gpu->minor;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *to)
{
    memset(to, 0, sizeof *to);
    if (sscanf(gpu->address, "%x:%x:%x", &to->domain, &to->bus, &to->device) != 3)
        return NOT_FOUND;
    snprintf(to->busIdLegacy, sizeof to->busIdLegacy, "%04X:%02X:%02X.0", to->domain & 0xffff, to->bus, to->device);
    snprintf(to->busId, sizeof to->busId, "%08X:%02X:%02X.0", to->domain, to->bus, to->device);
    return SUCCESS;
}
