#include "groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_GROUPS 64

static struct group groups[MOST_GROUPS];
static struct field_group field_groups[MOST_GROUPS];
static struct watch *watches;
static unsigned watch_count;

void forget_groups(void)
{
    memset(groups, 0, sizeof groups);
    memset(field_groups, 0, sizeof field_groups);
    watch_count = 0;
}

const struct group *group_find(handle_t group)
{
    return group && group <= MOST_GROUPS && groups[group - 1].used ? &groups[group - 1] : NULL;
}

const struct field_group *field_group_find(handle_t group)
{
    return group && group <= MOST_GROUPS && field_groups[group - 1].used ? &field_groups[group - 1] : NULL;
}

const struct line *meta_find(unsigned short field)
{
    const struct line *line;
    for (unsigned n = 0; (line = world_line("meta", n)); n++)
        if (line->numbers[1] == field)
            return line;
    return NULL;
}

static bool is_global(unsigned short field)
{
    const struct line *meta = meta_find(field);
    return meta && word(meta, 2) == NONE;
}

static struct watch *find(struct pair entity, unsigned short field)
{
    if (is_global(field))
        entity = (struct pair){NONE, 0};
    for (unsigned i = 0; i < watch_count; i++)
        if (watches[i].entity.group == entity.group && watches[i].entity.id == entity.id && watches[i].field == field)
            return &watches[i];
    return NULL;
}

const struct watch *watch_find(struct pair entity, unsigned short field)
{
    return find(entity, field);
}

double sampled_at(const struct watch *watch)
{
    double now = watch->stopped ? watch->stopped : engine_clock();
    double ticks = floor((now - watch->since) / watch->interval);
    /* Profiling ratios need two looks at the counters. */
    bool is_ratio = watch->field >= 1001 && watch->field < 1100;
    bool any = watch->seen || (is_ratio ? ticks >= 2 : watch->refreshed || ticks >= 1);
    return any ? watch->since + (ticks > 0 ? ticks : 0) * watch->interval : 0;
}

static unsigned used(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MOST_GROUPS; i++)
        count += groups[i].used;
    return count;
}

DCGM_API int dcgmGroupCreate(handle_t handle, int type, const char *name, handle_t *out)
{
    int code = begin_request(__func__, handle, name);
    const char *most = code == OK ? world_system("most_groups") : NULL;
    if (code == OK && type != 1)
        code = BAD_PARAMETER;
    if (code == OK && used() >= (most ? (unsigned)atoi(most) : MOST_GROUPS))
        code = LIMIT;
    for (unsigned i = 0; code == OK && i < MOST_GROUPS; i++)
        if (!groups[i].used) {
            groups[i] = (struct group){.used = true};
            *out = i + 1;
            break;
        }
    return end(code);
}

DCGM_API int dcgmGroupAddEntity(handle_t handle, handle_t group, int kind, unsigned id)
{
    int code = begin_request(__func__, handle, "");
    struct group *found = code == OK ? (struct group *)group_find(group) : NULL;
    if (code == OK && !found)
        code = NOT_CONFIGURED;
    if (code == OK && found->count == MOST_ENTITIES)
        code = LIMIT;
    if (code == OK)
        found->pairs[found->count++] = (struct pair){kind, id};
    return end(code);
}

DCGM_API int dcgmGroupDestroy(handle_t handle, handle_t group)
{
    int code = begin_request(__func__, handle, "");
    if (code == OK && !group_find(group))
        code = NOT_CONFIGURED;
    if (code == OK)
        groups[group - 1].used = false;
    return end(code);
}

/* "refused <field>": unknown to the engine, whatever the library says. */
static bool known(unsigned short field)
{
    const struct line *line;
    for (unsigned n = 0; (line = world_line("refused", n)); n++)
        if (word(line, 1) == field)
            return false;
    return meta_find(field) != NULL;
}

DCGM_API int dcgmFieldGroupCreate(handle_t handle, int count, const unsigned short *fields, const char *name, handle_t *out)
{
    int code = begin_request(__func__, handle, name);
    if (code == OK && (count < 1 || count > 128))
        code = BAD_PARAMETER;
    for (int i = 0; code == OK && i < count; i++)
        code = known(fields[i]) ? OK : BAD_PARAMETER;
    for (unsigned i = 0; code == OK && i < MOST_GROUPS; i++)
        if (field_groups[i].used && !strcmp(field_groups[i].name, name))
            code = DUPLICATE;
    if (code != OK)
        return end(code);
    for (unsigned i = 0; i < MOST_GROUPS; i++)
        if (!field_groups[i].used) {
            field_groups[i] = (struct field_group){.used = true, .count = (unsigned)count};
            snprintf(field_groups[i].name, sizeof field_groups[i].name, "%s", name);
            memcpy(field_groups[i].fields, fields, (unsigned)count * sizeof *fields);
            *out = i + 1;
            return end(OK);
        }
    return end(LIMIT);
}

DCGM_API int dcgmFieldGroupDestroy(handle_t handle, handle_t group)
{
    int code = begin_request(__func__, handle, "");
    if (code == OK && !field_group_find(group))
        code = NOT_CONFIGURED;
    if (code == OK)
        field_groups[group - 1].used = false;
    return end(code);
}

static void watch(struct pair entity, unsigned short field, double interval)
{
    struct watch *found = find(entity, field);
    if (!found) {
        watches = realloc(watches, (watch_count + 1) * sizeof *watches);
        if (!watches)
            abort();
        found = &watches[watch_count++];
        *found = (struct watch){.entity = is_global(field) ? (struct pair){NONE, 0} : entity, .field = field};
        found->since = engine_clock();
    } else if (found->stopped || found->interval != interval) {
        /* Samples go on in the new rhythm; what there is stays readable. */
        double last = sampled_at(found);
        found->seen = last > 0;
        found->since = last > 0 && !found->stopped ? last : engine_clock();
    }
    found->interval = interval;
    found->stopped = 0;
}

/* "system profiling_rc <code>", "system passes <n>": at most n ratios can be watched at once. */
static int refuse(const struct field_group *fields)
{
    const char *code = world_system("profiling_rc"), *most = world_system("passes");
    unsigned ratios = 0;
    for (unsigned i = 0; i < fields->count; i++)
        ratios += fields->fields[i] >= 1001 && fields->fields[i] < 1100;
    if (ratios && code)
        return atoi(code);
    return most && ratios > (unsigned)atoi(most) ? SEVERAL_PASSES : OK;
}

DCGM_API int dcgmWatchFields(handle_t handle, handle_t group, handle_t fields, long long interval, double keep, int most)
{
    (void)most;
    char detail[64];
    snprintf(detail, sizeof detail, "%zu %zu %lld %.0f", (size_t)group, (size_t)fields, interval, keep);
    int code = begin_request(__func__, handle, detail);
    const struct group *who = code == OK ? group_find(group) : NULL;
    const struct field_group *what = code == OK ? field_group_find(fields) : NULL;
    if (code == OK && (!who || !what))
        code = NOT_CONFIGURED;
    if (code == OK)
        code = refuse(what);
    for (unsigned i = 0; code == OK && i < who->count; i++)
        for (unsigned j = 0; j < what->count; j++)
            watch(who->pairs[i], what->fields[j], (double)interval / 1e6);
    return end(code);
}

DCGM_API int dcgmUnwatchFields(handle_t handle, handle_t group, handle_t fields)
{
    int code = begin_request(__func__, handle, "");
    const struct group *who = code == OK ? group_find(group) : NULL;
    const struct field_group *what = code == OK ? field_group_find(fields) : NULL;
    if (code == OK && (!who || !what))
        code = NOT_CONFIGURED;
    for (unsigned i = 0; code == OK && i < who->count; i++)
        for (unsigned j = 0; j < what->count; j++) {
            struct watch *found = find(who->pairs[i], what->fields[j]);
            if (found)
                found->stopped = engine_clock();
        }
    return end(code);
}

DCGM_API int dcgmUpdateAllFields(handle_t handle, int wait)
{
    (void)wait;
    int code = begin_request(__func__, handle, "");
    for (unsigned i = 0; code == OK && i < watch_count; i++)
        watches[i].refreshed = true;
    return end(code);
}
