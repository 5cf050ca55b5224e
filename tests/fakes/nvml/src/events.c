/* Events. An [event N] section happens once for each set that has registered its device and type:
 *
 *   at=<unix seconds>   then, and only for sets that had registered before, as with the real driver
 *   after_ms=<n>        so long after the registration
 *   neither             at once
 *
 * N identifies the event: a section that stays when the file changes does not happen again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

#define MAX_EVENTS 1024
#define MAX_REGISTRATIONS 64
#define POLL_MS 5u

struct registration {
    int gpu;
    uint64_t mask;
    double since;
};

struct event_set {
    struct registration registrations[MAX_REGISTRATIONS];
    unsigned count;
    bool delivered[MAX_EVENTS];
    struct event_set *next;
};

static struct event_set *sets;

static double unix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool is_set(const struct event_set *wanted)
{
    for (const struct event_set *set = sets; set; set = set->next)
        if (set == wanted)
            return true;
    return false;
}

NVML_API int nvmlEventSetCreate(nvmlEventSet_t *out)
{
    int rc = begin_system(__func__, NULL);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    struct event_set *set = rc == NVML_SUCCESS ? calloc(1, sizeof *set) : NULL;
    if (rc == NVML_SUCCESS && !set)
        rc = NVML_ERROR_MEMORY;
    if (set) {
        set->next = sets;
        sets = set;
        *out = set;
    }
    return end(rc);
}

NVML_API int nvmlEventSetFree(nvmlEventSet_t set)
{
    int rc = begin_system(__func__, NULL);
    if (rc != NVML_SUCCESS)
        return end(rc);
    for (struct event_set **link = &sets; *link; link = &(*link)->next) {
        if (*link == set) {
            *link = set->next;
            free(set);
            return end(NVML_SUCCESS);
        }
    }
    return end(NVML_ERROR_INVALID_ARGUMENT);
}

NVML_API int nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, uint64_t *out)
{
    return answer_u64(__func__, device, "event_types", out);
}

NVML_API int nvmlDeviceRegisterEvents(nvmlDevice_t device, uint64_t mask, nvmlEventSet_t set)
{
    const struct section *section;
    uint64_t supported;
    char detail[24];
    snprintf(detail, sizeof detail, "0x%llx", (unsigned long long)mask);
    int rc = begin(__func__, device, detail, &section);
    if (rc == NVML_SUCCESS && (!is_set(set) || set->count == MAX_REGISTRATIONS))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "event_types", &supported);
    if (rc == NVML_SUCCESS && (mask & ~supported))
        rc = NVML_ERROR_NOT_SUPPORTED;
    if (rc == NVML_SUCCESS)
        set->registrations[set->count++] = (struct registration){section->major, mask, unix_now()};
    return end(rc);
}

static bool is_due(const struct section *event, const struct registration *registration, double now)
{
    double at, after_ms;
    if (scenario_double(event, "at", &at) == NVML_SUCCESS)
        return at > registration->since && now >= at;
    if (scenario_double(event, "after_ms", &after_ms) == NVML_SUCCESS)
        return now >= registration->since + after_ms / 1000;
    return true;
}

static bool matches(const struct section *event, const struct registration *registration, double now)
{
    unsigned gpu;
    uint64_t type;
    return scenario_u32(event, "gpu", &gpu) == NVML_SUCCESS && (int)gpu == registration->gpu &&
           scenario_u64(event, "type", &type) == NVML_SUCCESS && (type & registration->mask) &&
           is_due(event, registration, now);
}

static bool wants(const struct event_set *set, const struct section *event, double now)
{
    for (unsigned i = 0; i < set->count; i++)
        if (matches(event, &set->registrations[i], now))
            return true;
    return false;
}

static int deliver(const struct section *event, nvmlEventData_t *out)
{
    unsigned index;
    scenario_u32(event, "gpu", &index);
    const struct section *gpu = scenario_find("gpu", (int)index, -1);
    if (!gpu)
        return complain("[event %d] is of a GPU that is not there", event->major);
    memset(out, 0, sizeof *out);
    out->device = handle_of(gpu);
    out->gi = out->ci = NO_INSTANCE;
    scenario_u64(event, "type", &out->type);
    scenario_u64(event, "data", &out->data);
    scenario_u32(event, "gi", &out->gi);
    scenario_u32(event, "ci", &out->ci);
    return NVML_SUCCESS;
}

/* TIMEOUT: nothing yet. */
static int look(struct event_set *set, nvmlEventData_t *out)
{
    const struct section *event;
    double now = unix_now();
    for (unsigned n = 0; (event = scenario_nth("event", n)); n++) {
        if (event->major >= MAX_EVENTS)
            return complain("[event %d]: numbers go to %d", event->major, MAX_EVENTS - 1);
        if (!set->delivered[event->major] && wants(set, event, now)) {
            set->delivered[event->major] = true;
            return deliver(event, out);
        }
    }
    for (unsigned i = 0; i < set->count; i++) {
        const struct section *gpu = scenario_find("gpu", set->registrations[i].gpu, -1);
        unsigned rc = 0;
        if (!gpu || (scenario_u32(gpu, "rc", &rc) == NVML_SUCCESS && rc == NVML_ERROR_GPU_IS_LOST))
            return NVML_ERROR_GPU_IS_LOST;
    }
    return NVML_ERROR_TIMEOUT;
}

NVML_API int nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout_ms)
{
    int rc = begin_system(__func__, NULL);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    double deadline = unix_now() + timeout_ms / 1000.0;
    while (rc == NVML_SUCCESS) {
        if (!is_set(set))
            return end(NVML_ERROR_INVALID_ARGUMENT);
        int found = look(set, out);
        if (found != NVML_ERROR_TIMEOUT || unix_now() >= deadline)
            return end(found);
        if (!wait_ms(timeout_ms < POLL_MS ? 1 : POLL_MS))
            return end(NVML_ERROR_UNINITIALIZED);
    }
    return end(rc);
}
