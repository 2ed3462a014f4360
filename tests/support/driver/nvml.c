/* NVIDIA's libnvidia-ml.so.1 without a GPU: it answers what a file says, as driver/__init__.py
 * describes it. The signatures are those of nvml.h. Nothing here knows how the answers are used. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL, NO_DRIVER = 9
};
enum { MOST_DEVICES = 64, MOST_SLICES = 7, MOST_METRICS = 512, LINE = 512 };
typedef unsigned long long Number;
typedef struct { char uuid[96]; char gpu[96]; } Device; /* gpu: of a slice that it is part of */

static Device devices[MOST_DEVICES]; /* handles point here */
static int users;
static double one_time; /* where several counters are read at once */

static double now(void)
{
    struct timespec time;
    if (one_time) return one_time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static FILE *open_script(void)
{
    const char *path = getenv("MLMS_STUB_GPUS");
    return path ? fopen(path, "r") : NULL;
}

/* Whether a line begins a block of this kind; then its UUID is copied. */
static int begins(const char *line, const char *kind, char *uuid)
{
    size_t size = strlen(kind);
    return !strncmp(line, kind, size) && line[size] == ' ' && sscanf(line + size, "%95s", uuid) == 1;
}

/* Copy what the last line of a block that begins with KEY says; the block of uuid "" is the head. */
static int say(const char *uuid, const char *key, char *text)
{
    char line[LINE], block[LINE] = "", word[LINE];
    int found = NOT_SUPPORTED, after;
    FILE *script = open_script();
    if (!users) found = UNINITIALIZED;
    else while (script && fgets(line, LINE, script)) {
        if (begins(line, "gpu", block) || begins(line, "mig", block)) continue;
        if (strcmp(block, uuid) || sscanf(line, "%s %n", word, &after) != 1) continue;
        if (strcmp(word, key)) continue;
        line[strcspn(line, "\n")] = 0;
        strcpy(text, line + after);
        found = *text == '!' ? atoi(text + 1) : SUCCESS;
    }
    if (script) fclose(script);
    return found;
}

/* A number is START, or START+RATE of a counter that rises RATE a second, in steps of @PERIOD. */
static int count(const Device *device, const char *key, double *number)
{
    char text[LINE], *rest;
    int status = device ? say(device->uuid, key, text) : INVALID_ARGUMENT;
    if (status) return status;
    *number = text[1] == 'x' ? strtoull(text, &rest, 16) : strtod(text, &rest);
    if (*rest == '+') {
        double rate = strtod(rest + 1, &rest), time = now();
        double period = *rest == '@' ? strtod(rest + 1, NULL) : 0;
        *number += rate * (period ? (Number)(time / period) * period : time);
    }
    return SUCCESS;
}

#define NUMBER(function, type, key)                                   \
    int function(Device *device, type *value)                         \
    {                                                                 \
        double number;                                                \
        int status = count(device, key, &number);                     \
        if (!status) *value = (type)number;                           \
        return status;                                                \
    }
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit")
NUMBER(nvmlDeviceGetTotalEnergyConsumption, Number, "energy")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, Number, "reasons")
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, Number, "reasons")
NUMBER(nvmlDeviceGetPerformanceState, unsigned, "state")
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned, "instance")
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned, "compute_instance")

static int numbered(Device *device, const char *name, unsigned which, double *number)
{
    char key[LINE];
    snprintf(key, LINE, "%s.%u", name, which);
    return count(device, key, number);
}

#define NUMBERED(function, key)                                       \
    int function(Device *device, unsigned which, unsigned *value)     \
    {                                                                 \
        double number;                                                \
        int status = numbered(device, key, which, &number);           \
        if (!status) *value = (unsigned)number;                       \
        return status;                                                \
    }
NUMBERED(nvmlDeviceGetClockInfo, "clock")
NUMBERED(nvmlDeviceGetMaxClockInfo, "most_clock")
NUMBERED(nvmlDeviceGetTemperature, "temperature")

int nvmlDeviceGetViolationStatus(Device *device, unsigned policy, Number *times)
{
    double number;
    int status = numbered(device, "violation", policy, &number);
    if (status) return status;
    times[0] = (Number)(now() * 1e6);
    times[1] = (Number)number;
    return SUCCESS;
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    int type, status;
    union { Number large; unsigned small; } value;
} Field;

int nvmlDeviceGetFieldValues(Device *device, int size, Field *fields)
{
    for (Field *field = fields; field < fields + size; field++) {
        double number;
        int is_power = field->id >= 185 && field->id <= 192; /* unsigned, the others unsigned long long */
        field->status = field->scope ? NOT_SUPPORTED : numbered(device, "field", field->id, &number);
        field->timestamp = (long long)(now() * 1e6);
        field->type = is_power ? 1 : 3;
        field->value.large = is_power ? ~0ull : 0; /* a driver leaves what was in the other half */
        if (field->status) continue;
        if (is_power) field->value.small = (unsigned)number;
        else field->value.large = (Number)number;
    }
    return SUCCESS;
}

static int text_of(const char *uuid, const char *key, char *text, unsigned size)
{
    char found[LINE];
    int status = say(uuid, key, found);
    if (!status) snprintf(text, size, "%s", found);
    return status;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size)
{
    return text_of(device->uuid, "name", text, size);
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { return text_of("", "driver", text, size); }

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->uuid);
    return users ? SUCCESS : UNINITIALIZED;
}

const char *nvmlErrorString(int status)
{
    return status == NOT_SUPPORTED ? "Not Supported" : "Another Error";
}

static int memory(Device *device, double *total, double *used)
{
    char text[LINE];
    int status = say(device->uuid, "memory", text);
    *used = 0;
    if (!status) sscanf(text, "%lf %lf", total, used);
    return status;
}

int nvmlDeviceGetMemoryInfo(Device *device, Number *bytes)
{
    double total, used;
    int status = memory(device, &total, &used);
    if (status) return status;
    bytes[0] = total, bytes[1] = total - used, bytes[2] = used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Number *bytes) /* version, total, reserved, free, used */
{
    double total, used;
    int status = memory(device, &total, &used);
    if (status) return status;
    bytes[1] = total, bytes[2] = 0, bytes[3] = total - used, bytes[4] = used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *shares)
{
    char text[LINE];
    int status = say(device->uuid, "utilization", text);
    if (!status) sscanf(text, "%u %u", shares, shares + 1);
    return status;
}

typedef struct { unsigned pid; Number bytes; unsigned gpu_instance, compute_instance; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *size, Process *processes)
{
    char line[LINE], block[LINE] = "", pid[LINE], bytes[LINE], refused[LINE];
    unsigned found = 0;
    int status = say(device->uuid, "processes", refused);
    FILE *script = open_script();
    if (status != NOT_SUPPORTED || !script) return status;
    while (fgets(line, LINE, script)) {
        if (begins(line, "gpu", block) || begins(line, "mig", block)) continue;
        if (strcmp(block, device->uuid) || sscanf(line, "process %s %s", pid, bytes) != 2) continue;
        if (found++ < *size)
            processes[found - 1] = (Process){
                strcmp(pid, "self") ? (unsigned)atoi(pid) : (unsigned)getpid(),
                *bytes == '?' ? ~0ull : strtoull(bytes, NULL, 10), ~0u, ~0u};
    }
    fclose(script);
    status = found > *size ? TOO_SMALL : SUCCESS;
    *size = found;
    return status;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *size, Process *processes)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, size, processes);
}

/* Return the handle of a UUID, which stays the same. */
static Device *handle_of(const char *uuid, const char *gpu)
{
    Device *device = devices;
    while (*device->uuid && strcmp(device->uuid, uuid)) device++;
    if (device == devices + MOST_DEVICES - 1) return NULL;
    strcpy(device->uuid, uuid);
    strcpy(device->gpu, gpu);
    return device;
}

/* Find a GPU, or a slice of one, by its place or UUID; return how many there are. */
static int find(const char *parent, int index, const char *uuid, Device **device)
{
    char line[LINE], gpu[96] = "", slice[96];
    int found = 0;
    FILE *script = open_script();
    while (script && fgets(line, LINE, script)) {
        const char *name = NULL;
        if (begins(line, "gpu", gpu) && !*parent) name = gpu;
        if (begins(line, "mig", slice) && (!strcmp(parent, gpu) || uuid)) name = slice;
        if (!name) continue;
        if ((uuid ? !strcmp(uuid, name) : found == index) && strcmp(name, "-"))
            *device = handle_of(name, name == slice ? gpu : "");
        found++;
    }
    if (script) fclose(script);
    return found;
}

int nvmlDeviceGetCount_v2(unsigned *size)
{
    *size = find("", -1, NULL, NULL);
    return users ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device)
{
    *device = NULL;
    find("", index, NULL, device);
    return users ? (*device ? SUCCESS : INVALID_ARGUMENT) : UNINITIALIZED;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device)
{
    *device = NULL;
    find("", -1, uuid, device);
    return users ? (*device ? SUCCESS : NOT_FOUND) : UNINITIALIZED;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending)
{
    char text[LINE];
    int status = say(device->uuid, "mig_mode", text);
    if (!status) *current = *pending = atoi(text);
    return status;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *size)
{
    unsigned current = 0, pending;
    nvmlDeviceGetMigMode(device, &current, &pending);
    *size = current ? MOST_SLICES : 0;
    return users ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice)
{
    *slice = NULL;
    find(device->uuid, index, NULL, slice);
    return *slice ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *answer)
{
    *answer = *device->gpu != 0;
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *slice, Device **device)
{
    *device = *slice->gpu ? handle_of(slice->gpu, "") : slice; /* of a GPU it isn't documented */
    return SUCCESS;
}

typedef struct { double time, counters[MOST_METRICS]; int statuses[MOST_METRICS]; } Sample;
typedef struct { unsigned id; int status; double value; const char *texts[3]; } Metric;
typedef struct { unsigned version, size; Sample *first, *last; Metric metrics[]; } Metrics;

int nvmlGpmQueryDeviceSupport(Device *device, unsigned *support) /* version, isSupportedDevice */
{
    double number;
    int status = count(device, "gpm", &number);
    if (!status) support[1] = (unsigned)number;
    return status;
}

int nvmlGpmSampleAlloc(Sample **sample)
{
    *sample = calloc(1, sizeof(Sample));
    return SUCCESS;
}

int nvmlGpmSampleFree(Sample *sample)
{
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, Sample *sample)
{
    if (*device->gpu) return INVALID_ARGUMENT; /* a slice has nvmlGpmMigSampleGet */
    sample->time = one_time = now();
    for (unsigned id = 0; id < 32; id++)
        sample->statuses[id] = numbered(device, "metric", id, sample->counters + id);
    one_time = 0;
    return SUCCESS;
}

int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample)
{
    Device *slice;
    double number;
    for (int place = 0; place < MOST_SLICES; place++) {
        if (nvmlDeviceGetMigDeviceHandleByIndex(device, place, &slice)) continue;
        if (count(slice, "instance", &number) || number != instance) continue;
        Device whole = *slice;
        *whole.gpu = 0;
        return nvmlGpmSampleGet(&whole, sample);
    }
    return INVALID_ARGUMENT;
}

int nvmlGpmMetricsGet(Metrics *request) /* means over the time between two samples */
{
    double seconds = request->last->time - request->first->time;
    for (unsigned place = 0; place < request->size; place++) {
        Metric *metric = request->metrics + place;
        unsigned id = metric->id;
        metric->status = request->last->statuses[id];
        metric->value = (request->last->counters[id] - request->first->counters[id]) / seconds;
    }
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    char text[LINE];
    FILE *script = open_script();
    if (!script) return NO_DRIVER;
    fclose(script);
    users++;
    int status = say("", "init", text);
    if (status == NOT_SUPPORTED) return SUCCESS;
    users--;
    return status;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return users ? users--, SUCCESS : UNINITIALIZED; }

int stub_users(void) { return users; } /* of ours: who forgot nvmlShutdown */
