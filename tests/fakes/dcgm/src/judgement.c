/* Health watches, and which profiling ratios a GPU has. */
#include <stdlib.h>
#include <string.h>

#include "groups.h"

static bool armed, checked;

DCGM_API int dcgmHealthSet(handle_t handle, handle_t group, unsigned systems)
{
    int code = begin_request(__func__, handle, "");
    if (code == OK && !group_find(group))
        code = NOT_CONFIGURED;
    armed = code == OK && systems;
    checked = false;
    return end(code);
}

/* "incident <system> <health> <code> <group> <id>"; the first check looks at nothing. */
DCGM_API int dcgmHealthCheck(handle_t handle, handle_t group, struct health *out)
{
    int code = begin_request(__func__, handle, "");
    const struct line *line;
    if (code == OK && out->version != VERSION(struct health, HEALTH_NUMBER))
        code = VERSION_MISMATCH;
    if (code == OK && (!group_find(group) || !armed))
        code = NOT_CONFIGURED;
    if (code != OK)
        return end(code);
    out->overall = 0;
    out->count = 0;
    for (unsigned n = 0; checked && out->count < MOST_ENTITIES && (line = world_line("incident", n)); n++) {
        struct incident *incident = &out->incidents[out->count++];
        incident->system = (unsigned)word(line, 1);
        incident->health = (int)word(line, 2);
        incident->code = (unsigned)word(line, 3);
        incident->entity = (struct pair){(int)word(line, 4), (unsigned)word(line, 5)};
        if (incident->health > out->overall)
            out->overall = incident->health;
    }
    checked = true;
    return end(OK);
}

/* "metrics <gpu> <major> <minor> <field>…" */
DCGM_API int dcgmProfGetSupportedMetricGroups(handle_t handle, struct metric_groups *out)
{
    int code = begin_request(__func__, handle, "");
    const struct line *line;
    if (code == OK && out->version != VERSION(struct metric_groups, 3))
        code = VERSION_MISMATCH;
    if (code != OK)
        return end(code);
    out->count = 0;
    for (unsigned n = 0; out->count < 10 && (line = world_line("metrics", n)); n++) {
        if (word(line, 1) != (long)out->gpu)
            continue;
        unsigned place = out->count++;
        out->groups[place].major = (unsigned short)word(line, 2);
        out->groups[place].minor = (unsigned short)word(line, 3);
        out->groups[place].count = line->count - 4;
        for (unsigned i = 4; i < line->count; i++)
            out->groups[place].fields[i - 4] = (unsigned short)word(line, i);
    }
    return end(out->count ? OK : PROFILING_NOT_SUPPORTED);
}

DCGM_API const char *errorString(int code)
{
    return code == OK ? "Success" : NULL;
}
