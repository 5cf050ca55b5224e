/* Events: each [event N] of the scenario comes once to each event set. Keep N when rewriting the file. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"
#include "layouts.h"

#define MAX_EVENTS 256

struct set {
    uint64_t masks[MAX_DEVICES];
    bool given[MAX_EVENTS];
};

HLML_API int hlml_event_set_create(struct set **out)
{
    int rc = begin_system(__func__);
    if (rc == SUCCESS)
        *out = calloc(1, sizeof **out);
    return rc;
}

HLML_API int hlml_event_set_free(struct set *set)
{
    int rc = begin_system(__func__);
    if (rc == SUCCESS)
        free(set);
    return rc;
}

HLML_API int hlml_device_register_events(device_t handle, uint64_t types, struct set *set)
{
    const struct section *section;
    int rc = begin(__func__, handle, &section);
    if (rc == SUCCESS)
        set->masks[index_of(handle)] |= types;
    return rc;
}

static bool next_event(struct set *set, event_data_t *out)
{
    const struct section *event;
    for (unsigned n = 0; (event = scenario_nth("event", n)); n++) {
        uint64_t device = 0, type = 0;
        if (event->number >= MAX_EVENTS || set->given[event->number] || !scenario_number(event, "device", &device) ||
            !scenario_number(event, "type", &type) || device >= MAX_DEVICES || !(set->masks[device] & type))
            continue;
        set->given[event->number] = true;
        *out = (event_data_t){.device = handle_of((int)device), .type = type};
        return true;
    }
    return false;
}

HLML_API int hlml_event_set_wait(struct set *set, event_data_t *out, unsigned milliseconds)
{
    int rc = begin_system(__func__);
    if (rc != SUCCESS)
        return rc;
    if (next_event(set, out))
        return SUCCESS;
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
    return scenario_refresh() && next_event(set, out) ? SUCCESS : TIMEOUT;
}
