/* Values: the newest of each watched field, or what the driver says now. */
#include <stdlib.h>
#include <string.h>

#include "groups.h"

#define INTEGER_BLANK INT64_C(0x7ffffffffffffff0)
#define REAL_BLANK 140737488355328.0

static const char *const blanks[] = {"blank", "not_found", "not_supported", "no_permission"};
static const char *const text_blanks[] = {"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>"};

static int blank_of(const char *text)
{
    for (int i = 0; i < 4; i++)
        if (!strcmp(text, blanks[i]))
            return i;
    return -1;
}

/* "value <group> <id> <field> <type> <status> <number, text or a blank's name>" */
static const struct line *value_find(struct pair entity, unsigned short field)
{
    const struct line *line;
    for (unsigned n = 0; (line = world_line("value", n)); n++)
        if (line->numbers[3] == field && line->numbers[2] == (long)entity.id && line->numbers[1] == entity.group)
            return line;
    return NULL;
}

static void fill(struct value_v2 *out, char type, const char *text, double at)
{
    int blank = blank_of(text);
    out->type = (unsigned short)type;
    if (type == 's')
        strncpy(out->as.text, blank < 0 ? text : text_blanks[blank], sizeof out->as.text - 1);
    else if (type == 'd')
        out->as.real = blank < 0 ? number_at(text, at) : REAL_BLANK + blank;
    else if (blank >= 0)
        out->as.integer = INTEGER_BLANK + blank;
    else
        out->as.integer = (int64_t)number_at(text, at);
}

/* A record of no value: blank, with the reason as its status. */
static void fill_nothing(struct value_v2 *out, const struct line *meta, int status)
{
    out->status = status;
    fill(out, meta ? meta->words[3][0] : 'i', "blank", 0);
}

static void read_one(struct pair entity, unsigned short field, bool live, struct value_v2 *out)
{
    *out = (struct value_v2){.version = VERSION(struct value_v2, 2), .group = entity.group, .id = entity.id, .field = field};
    const struct line *meta = meta_find(field);
    if (!meta) {
        fill_nothing(out, NULL, UNKNOWN_FIELD);
        return;
    }
    const struct watch *watch = watch_find(entity, field);
    double at = live ? engine_clock() : watch ? sampled_at(watch) : 0;
    if (!live && !watch) {
        fill_nothing(out, meta, NOT_WATCHED);
        return;
    }
    if (at <= 0) {
        fill_nothing(out, meta, NO_SAMPLE);
        return;
    }
    const struct line *line = value_find(entity, field);
    out->at = (int64_t)(at * 1e6);
    if (!line) {
        /* What the scenario does not have, the device does not support. */
        fill(out, meta->words[3][0], "not_supported", 0);
        return;
    }
    /* "<value>@<Unix seconds>": sampled then, whenever it is read. */
    char text[512];
    strncpy(text, line->words[6], sizeof text - 1);
    text[sizeof text - 1] = 0;
    char *told_at = line->words[4][0] == 's' ? NULL : strchr(text, '@');
    if (told_at) {
        *told_at = 0;
        out->at = (int64_t)(number_at(told_at + 1, 0) * 1e6);
    }
    out->status = (int)word(line, 5);
    fill(out, line->words[4][0], text, at);
}

DCGM_API int dcgmEntitiesGetLatestValues(handle_t handle, const struct pair *pairs, unsigned pair_count,
                                         const unsigned short *fields, unsigned field_count, unsigned flags,
                                         struct value_v2 *out)
{
    int code = begin_request(__func__, handle, flags & 1 ? "live" : "");
    /* "system unfilled <field>": the engine leaves its records out. */
    const char *skipped = code == OK ? world_system("unfilled") : NULL;
    if (code == OK && (pair_count > MOST_ENTITIES || field_count > 128 || !pair_count || !field_count))
        code = BAD_PARAMETER;
    /* The library sends the request of its own generation. */
    if (code == OK && generation(DCGM_MAJOR == 3 ? "library3" : "library4") > generation("engine"))
        code = FUNCTION_NOT_FOUND;
    unsigned place = 0;
    /* By field and then by entity: the order is not that of the caller. */
    for (unsigned j = 0; code == OK && j < field_count; j++)
        for (unsigned i = 0; i < pair_count; i++)
            if (!skipped || atoi(skipped) != fields[j])
                read_one(pairs[i], fields[j], flags & 1, &out[place++]);
    return end(code);
}

DCGM_API const struct meta *DcgmFieldGetById(unsigned short field)
{
    static struct meta answers[2048];
    begin("DcgmFieldGetById", "");
    const struct line *line = meta_find(field);
    struct meta *answer = field < 2048 && line ? &answers[field] : NULL;
    if (answer) {
        answer->field = field;
        answer->level = (int)word(line, 2);
        answer->type = line->words[3][0];
        answer->scope = answer->level != NONE;
    }
    end(OK);
    return answer;
}

DCGM_API int DcgmFieldsInit(void) { return OK; }
