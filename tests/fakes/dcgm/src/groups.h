/* Groups, field groups and watches. */
#ifndef FAKE_DCGM_GROUPS_H
#define FAKE_DCGM_GROUPS_H

#include "call.h"

struct group {
    bool used;
    unsigned count;
    struct pair pairs[MOST_ENTITIES];
};
struct field_group {
    bool used;
    char name[256];
    unsigned count;
    unsigned short fields[128];
};

/* One entity's field. Times are Unix seconds on the engine's clock. */
struct watch {
    struct pair entity;
    unsigned short field;
    double since, interval, stopped;
    bool refreshed, seen;
};

const struct group *group_find(handle_t group);
const struct field_group *field_group_find(handle_t group);
const struct watch *watch_find(struct pair entity, unsigned short field);
/* When the newest sample was taken, 0 before the first. */
double sampled_at(const struct watch *watch);
/* "meta <field> <level> <type>" */
const struct line *meta_find(unsigned short field);

#endif
