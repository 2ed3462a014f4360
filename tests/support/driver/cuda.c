/* NVIDIA's libcuda.so.1 without a GPU: as many devices as the file says; see driver/__init__.py. */
#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS, NO_DEVICE = 100 };

int cuInit(unsigned flags) { return getenv("MLMS_STUB_GPUS") ? SUCCESS : NO_DEVICE; }

int cuDeviceGetCount(int *count)
{
    char line[512];
    FILE *script = fopen(getenv("MLMS_STUB_GPUS"), "r");
    *count = 0;
    while (script && fgets(line, sizeof line, script)) sscanf(line, "cuda %d", count);
    if (script) fclose(script);
    return *count ? SUCCESS : NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return SUCCESS;
}
