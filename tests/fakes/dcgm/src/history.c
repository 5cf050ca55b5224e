/* Xids, as the history of field 230. */
#include <stdlib.h>
#include <string.h>

#include "groups.h"

#define XID 230
#define AT_ONCE 16

typedef int (*callback_t)(int, unsigned, struct value_v1 *, int, void *);

/* "xid <group> <id> <µs> <xid>" */
static int tell(struct pair entity, long long since, long long *next, callback_t callback, void *user)
{
    const struct line *line;
    struct value_v1 *records = calloc(AT_ONCE, sizeof *records);
    int count = 0, stop = 0;
    if (!records)
        abort();
    for (unsigned n = 0; !stop && (line = world_line("xid", n)); n++) {
        long long at = word(line, 3);
        if (word(line, 1) != entity.group || word(line, 2) != (long)entity.id || at < since)
            continue;
        records[count] = (struct value_v1){.version = VERSION(struct value_v1, 1), .field = XID, .type = 'i', .at = at};
        records[count].as.integer = word(line, 4);
        if (at >= *next)
            *next = at + 1;
        if (++count == AT_ONCE) {
            stop = callback(entity.group, entity.id, records, count, user);
            count = 0;
        }
    }
    if (count && !stop)
        stop = callback(entity.group, entity.id, records, count, user);
    free(records);
    return stop;
}

DCGM_API int dcgmGetValuesSince_v2(handle_t handle, handle_t group, handle_t fields, long long since, long long *next,
                                   callback_t callback, void *user)
{
    int code = begin_request(__func__, handle, "");
    const struct group *who = code == OK ? group_find(group) : NULL;
    const struct field_group *what = code == OK ? field_group_find(fields) : NULL;
    if (code == OK && (!who || !what))
        code = NOT_CONFIGURED;
    if (code != OK)
        return end(code);
    *next = since;
    for (unsigned i = 0; i < who->count; i++)
        for (unsigned j = 0; j < what->count; j++)
            if (what->fields[j] == XID && watch_find(who->pairs[i], XID) &&
                tell(who->pairs[i], since, next, callback, user))
                return end(OK);
    return end(OK);
}
