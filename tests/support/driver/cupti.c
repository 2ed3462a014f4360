/* NVIDIA's libcupti without a GPU: what is enabled, pushed, asked for and dropped is kept as the real
 * one keeps it, and its records are those that a test adds; see tests/support/cupti.py. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void (*Requested)(uint8_t **, size_t *, size_t *);
typedef void (*Completed)(void *, uint32_t, uint8_t *, size_t, size_t);
enum { SUCCESS, LIMIT_REACHED = 12, QUEUE_EMPTY = 26, RUNTIME_API = 2, ROOM = 1 << 16 };

static Requested requested;
static Completed completed;
static int enabled[64], depth[8], refusal;
static uint64_t stacks[8][64];
static uint8_t records[ROOM];
static size_t used, count, dropped, sizes[1024];

/* Note a record where its kind is enabled, as an activity of the driver would be. */
void stub_add(int kind, const void *record, size_t size)
{
    if (!enabled[kind]) return;
    if (used + size > ROOM) {
        dropped++;
        return;
    }
    memcpy(records + used, record, size);
    used += sizes[count++] = size;
}

uint64_t stub_top(int kind) { return depth[kind] ? stacks[kind][depth[kind] - 1] : 0; }

void stub_refuse(int status) { refusal = status; }

int cuptiActivityRegisterCallbacks(Requested request, Completed complete)
{
    requested = request;
    completed = complete;
    return SUCCESS;
}

int cuptiActivityEnable(int kind)
{
    enabled[kind] = !refusal;
    return refusal;
}

int cuptiActivityDisable(int kind)
{
    enabled[kind] = 0;
    return refusal;
}

int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id)
{
    if (!refusal) stacks[kind][depth[kind]++] = id;
    return refusal;
}

int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *id)
{
    if (!depth[kind]) return QUEUE_EMPTY;
    *id = stacks[kind][--depth[kind]];
    return SUCCESS;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *number)
{
    *number = dropped;
    dropped = 0;
    return SUCCESS;
}

int cuptiActivityFlushAll(uint32_t flag)
{
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0, bytes = used;
    if (!used) return SUCCESS;
    requested(&buffer, &size, &most);
    memcpy(buffer, records, used);
    used = 0;
    completed(NULL, 0, buffer, size, bytes);
    count = 0;
    return SUCCESS;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    static size_t next;
    if (next == count) return next = 0, LIMIT_REACHED;
    *record = next ? *record + sizes[next - 1] : buffer;
    next++;
    return SUCCESS;
}

int cuptiGetCallbackName(int domain, uint32_t number, const char **name)
{
    *name = domain == RUNTIME_API ? "cudaLaunchKernel_v7000" : "cuLaunchKernel";
    return SUCCESS;
}

int cuptiGetResultString(int status, const char **text)
{
    *text = "refused by the stub";
    return SUCCESS;
}
