/* NVIDIA's libcuda.so.1 without a GPU: as many devices as the file says; see driver/__init__.py. */
#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS, INVALID_VALUE, NO_DEVICE = 100, INVALID_DEVICE };
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
