/* NVIDIA's libcuda.so.1 without a GPU: as many devices as the file says; see driver/__init__.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE = 100, INVALID_DEVICE };
enum { L2_CACHE_SIZE = 38 };

int cuInit(unsigned flags) { return getenv("MLMS_STUB_GPUS") ? SUCCESS : NO_DEVICE; }

static int number(const char *form)
{
    char line[512];
    int found = 0;
    FILE *script = fopen(getenv("MLMS_STUB_GPUS"), "r");
    while (script && fgets(line, sizeof line, script)) sscanf(line, form, &found);
    if (script) fclose(script);
    return found;
}

int cuDeviceGetCount(int *count) { return (*count = number("cuda %d")) ? SUCCESS : NO_DEVICE; }

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < number("cuda %d") ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    if (attribute != L2_CACHE_SIZE) return INVALID_VALUE;
    *value = number("l2 %d");
    return SUCCESS;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return SUCCESS;
}

/* Memory is the host's, and a stream has done everything at once. */
enum { CONTEXT = 1, STREAM = 2 };
typedef unsigned long long Address;
static int allocations;

int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)CONTEXT, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxSetCurrent(void *context) { return context ? SUCCESS : INVALID_VALUE; }
int cuStreamCreate(void **stream, unsigned flags) { return *stream = (void *)STREAM, SUCCESS; }
int cuStreamDestroy_v2(void *stream) { return SUCCESS; }
int cuStreamSynchronize(void *stream) { return SUCCESS; }

int cuMemAlloc_v2(Address *address, size_t size)
{
    if (!size) return INVALID_VALUE;
    allocations++;
    return (*address = (Address)malloc(size)) ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFree_v2(Address address) { return free((void *)address), SUCCESS; }

int cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t size, void *stream)
{
    return memcpy((void *)to, from, size), SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t size, void *stream)
{
    return memcpy(to, (void *)from, size), SUCCESS;
}

int cuGetErrorString(int status, const char **text)
{
    *text = status == OUT_OF_MEMORY ? "out of memory" : "invalid";
    return SUCCESS;
}

int stub_allocations(void) { return allocations; }
