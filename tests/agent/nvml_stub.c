/* A stand-in for the driver's libnvidia-ml.so.1, compiled against NVIDIA's own header.
 *
 * It reads the file that the environment variable NVML_STUB names at every call, one order a line:
 *
 *   gpus N                how many GPUs there are (1)
 *   init CODE             nvmlInit fails with this nvmlReturn_t
 *   lost GPU              every question about the GPU is answered with NVML_ERROR_GPU_IS_LOST
 *   fail FUNCTION CODE    the function fails so, on every GPU
 *   hang FUNCTION GPU     the function does not return while the line is there
 *   set NAME GPU VALUE    what a reading says
 *   xid SERIAL GPU XID    the driver reports an Xid; each serial number is delivered once
 */
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 8

struct nvmlDevice_st {
    int gpu;
};

static struct nvmlDevice_st devices[MAX_GPUS];
static int initialised = 0;
static int delivered = 0;

/* Run through the orders; the callback returns whether to stop. */
typedef int (*visit_t)(const char *line, void *context);

static void orders(visit_t visit, void *context) {
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    if (!file)
        return;
    while (fgets(line, sizeof line, file))
        if (visit(line, context))
            break;
    fclose(file);
}

struct question {
    const char *name;
    int gpu;
    long long answer;
    int found;
};

static int visit_setting(const char *line, void *context) {
    struct question *asked = context;
    char name[128];
    int gpu;
    long long value;
    if (sscanf(line, "set %127s %d %lld", name, &gpu, &value) == 3 && gpu == asked->gpu && !strcmp(name, asked->name)) {
        asked->answer = value;
        asked->found = 1;
    }
    return 0;
}

static long long setting(const char *name, int gpu, long long otherwise) {
    struct question asked = {name, gpu, 0, 0};
    orders(visit_setting, &asked);
    return asked.found ? asked.answer : otherwise;
}

static int visit_count(const char *line, void *context) { return sscanf(line, "gpus %d", (int *)context) == 1; }
static int visit_init(const char *line, void *context) { return sscanf(line, "init %d", (int *)context) == 1; }

static int visit_lost(const char *line, void *context) {
    struct question *asked = context;
    int gpu;
    if (sscanf(line, "lost %d", &gpu) == 1 && gpu == asked->gpu)
        asked->found = 1;
    return asked->found;
}

static int visit_fail(const char *line, void *context) {
    struct question *asked = context;
    char name[128];
    int code;
    if (sscanf(line, "fail %127s %d", name, &code) == 2 && !strcmp(name, asked->name)) {
        asked->answer = code;
        asked->found = 1;
    }
    return asked->found;
}

static int visit_hang(const char *line, void *context) {
    struct question *asked = context;
    char name[128];
    int gpu;
    if (sscanf(line, "hang %127s %d", name, &gpu) == 2 && gpu == asked->gpu && !strcmp(name, asked->name))
        asked->found = 1;
    return asked->found;
}

/* What every question about a GPU goes through first. */
static nvmlReturn_t begin(const char *name, nvmlDevice_t device) {
    struct question asked = {name, device ? device->gpu : -1, 0, 0};
    if (!initialised)
        return NVML_ERROR_UNINITIALIZED;
    for (;;) {
        asked.found = 0;
        orders(visit_hang, &asked);
        if (!asked.found)
            break;
        usleep(20000);
    }
    orders(visit_lost, &asked);
    if (asked.found)
        return NVML_ERROR_GPU_IS_LOST;
    orders(visit_fail, &asked);
    return asked.found ? (nvmlReturn_t)asked.answer : NVML_SUCCESS;
}

#define BEGIN(device)                                                                                                  \
    do {                                                                                                               \
        nvmlReturn_t code = begin(__func__, device);                                                                   \
        if (code != NVML_SUCCESS)                                                                                      \
            return code;                                                                                               \
    } while (0)

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    int code = NVML_SUCCESS;
    (void)flags;
    orders(visit_init, &code);
    initialised = code == NVML_SUCCESS;
    return (nvmlReturn_t)code;
}

nvmlReturn_t nvmlShutdown(void) {
    initialised = 0;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    default:
        return "Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    snprintf(version, length, "580.65.06");
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    int gpus = 1;
    orders(visit_count, &gpus);
    *count = (unsigned int)gpus;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index >= MAX_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    devices[index].gpu = (int)index;
    *device = &devices[index];
    BEGIN(*device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    BEGIN(device);
    snprintf(uuid, length, "GPU-00000000-0000-4000-8000-%012d", device->gpu);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    BEGIN(device);
    snprintf(name, length, "NVIDIA Stub %d", device->gpu);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    BEGIN(device);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", device->gpu + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    BEGIN(device);
    memory->total = 80ull << 30;
    memory->used = (unsigned long long)setting("memory_used", device->gpu, 1ll << 30);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    BEGIN(device);
    if (!infos) {
        *count = 1;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    *count = 1;
    memset(infos, 0, sizeof *infos);
    infos[0].pid = 4242;
    infos[0].usedGpuMemory = (unsigned long long)setting("memory_used", device->gpu, 1ll << 30);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    BEGIN(device);
    utilization->gpu = (unsigned int)setting("utilisation", device->gpu, 40);
    utilization->memory = 20;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
    BEGIN(device);
    (void)sensor;
    *celsius = (unsigned int)setting("celsius", device->gpu, 50);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius) {
    BEGIN(device);
    *celsius = threshold == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN ? 87 : 92;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
    BEGIN(device);
    *milliwatts = 300000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts) {
    BEGIN(device);
    *milliwatts = 700000;
    return NVML_SUCCESS;
}

/* Only under its older name: nvmlDeviceGetCurrentClocksEventReasons is missing, as it is from older drivers. */
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    BEGIN(device);
    *reasons = (unsigned long long)setting("throttled", device->gpu, 4);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                         unsigned long long *count) {
    BEGIN(device);
    if (counter != NVML_VOLATILE_ECC)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = (unsigned long long)(type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED
                                      ? setting("ecc_uncorrected", device->gpu, 0)
                                      : setting("ecc_corrected", device->gpu, 0));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                       unsigned int *pending, unsigned int *failed) {
    BEGIN(device);
    *corrected = 0;
    *uncorrected = (unsigned int)setting("rows_remapped", device->gpu, 0);
    *pending = (unsigned int)setting("row_remap_pending", device->gpu, 0);
    *failed = (unsigned int)setting("row_remap_failed", device->gpu, 0);
    return NVML_SUCCESS;
}

/* A GPU that remaps rows does not retire pages. */
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                       unsigned long long *addresses) {
    BEGIN(device);
    (void)cause, (void)count, (void)addresses;
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending) {
    BEGIN(device);
    (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    BEGIN(device);
    if (link >= 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    *active = (int)link < setting("nvlinks", device->gpu, 4) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *count) {
    BEGIN(device);
    (void)link, (void)counter;
    *count = (unsigned long long)setting("nvlink_errors", device->gpu, 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
    BEGIN(device);
    *width = (unsigned int)setting("pcie_width", device->gpu, 16);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
    BEGIN(device);
    *width = 16;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count) {
    BEGIN(device);
    *count = (unsigned int)setting("pcie_replays", device->gpu, 0);
    return NVML_SUCCESS;
}

/* The last two places of the table stand for the instances of a GPU whose setting "mig" is 1. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    BEGIN(device);
    *current = *pending = (unsigned int)setting("mig", device->gpu, 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    BEGIN(device);
    *count = 7;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    BEGIN(device);
    if (index >= 2)
        return NVML_ERROR_NOT_FOUND;
    devices[MAX_GPUS - 2 + index].gpu = MAX_GPUS - 2 + (int)index;
    *instance = &devices[MAX_GPUS - 2 + index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    BEGIN(device);
    *types = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    *set = (nvmlEventSet_t)&delivered;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    BEGIN(device);
    (void)types, (void)set;
    return NVML_SUCCESS;
}

struct event {
    int serial, gpu, xid;
};

static int visit_xid(const char *line, void *context) {
    struct event *event = context;
    return sscanf(line, "xid %d %d %d", &event->serial, &event->gpu, &event->xid) == 3 && event->serial > delivered;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
    struct timespec start, now;
    (void)set;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        struct event event = {0, 0, 0};
        nvmlReturn_t code = begin(__func__, NULL);
        if (code != NVML_SUCCESS)
            return code;
        orders(visit_xid, &event);
        if (event.serial > delivered && event.gpu >= 0 && event.gpu < MAX_GPUS) {
            delivered = event.serial;
            memset(data, 0, sizeof *data);
            data->device = &devices[event.gpu];
            data->eventType = nvmlEventTypeXidCriticalError;
            data->eventData = (unsigned long long)event.xid;
            return NVML_SUCCESS;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >= (long)milliseconds)
            return NVML_ERROR_TIMEOUT;
        usleep(10000);
    }
}
