#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char *const verbs[] = {
    "system", "behave", "meta", "gpu", "mig", "entity", "cores", "links", "value", "metrics", "incident", "xid", "refused",
};
#define VERBS (sizeof verbs / sizeof *verbs)

static struct {
    struct line *lines;
    unsigned count;
    const struct line **by_verb[VERBS];
    unsigned counts[VERBS];
    struct stat seen;
    bool loaded;
} world;

bool complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("fake dcgm: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

static int verb_of(const char *text)
{
    for (unsigned i = 0; i < VERBS; i++)
        if (!strcmp(verbs[i], text))
            return (int)i;
    return -1;
}

/* Words are parted by one tab, so that a value may hold blanks. */
static bool parse(char *text, struct line *out)
{
    memset(out, 0, sizeof *out);
    text[strcspn(text, "\n")] = 0;
    char *copy = strdup(text), *rest = copy;
    if (!copy)
        abort();
    for (char *found; (found = strsep(&rest, "\t"));) {
        if (out->count == MOST_WORDS)
            return false;
        out->numbers[out->count] = strtol(found, NULL, 0);
        out->words[out->count++] = found;
    }
    return verb_of(out->words[0]) >= 0;
}

static void index_lines(void)
{
    for (unsigned i = 0; i < VERBS; i++) {
        free(world.by_verb[i]);
        world.by_verb[i] = calloc(world.count + 1, sizeof *world.by_verb[i]);
        if (!world.by_verb[i])
            abort();
        world.counts[i] = 0;
    }
    for (unsigned i = 0; i < world.count; i++) {
        int verb = verb_of(world.lines[i].words[0]);
        world.by_verb[verb][world.counts[verb]++] = &world.lines[i];
    }
}

static bool load(FILE *file, const char *path)
{
    char *text = NULL;
    size_t capacity = 0;
    struct line *lines = NULL;
    unsigned count = 0;
    bool good = true;
    while (good && getline(&text, &capacity, file) >= 0) {
        lines = realloc(lines, (count + 1) * sizeof *lines);
        if (!lines)
            abort();
        good = parse(text, &lines[count++]) || complain("%s:%u: not understood: %s", path, count, text);
    }
    free(text);
    if (!good)
        return false;
    for (unsigned i = 0; i < world.count; i++)
        free(world.lines[i].words[0]);
    free(world.lines);
    world.lines = lines;
    world.count = count;
    index_lines();
    return true;
}

bool world_refresh(void)
{
    const char *path = getenv("FAKE_DCGM_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now))
        return complain("FAKE_DCGM_SCENARIO must name the scenario file (it is %s)", path ? path : "not set");
    if (world.loaded && now.st_ino == world.seen.st_ino && now.st_size == world.seen.st_size &&
        now.st_mtim.tv_sec == world.seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == world.seen.st_mtim.tv_nsec)
        return true;
    FILE *file = fopen(path, "re");
    if (!file)
        return complain("cannot open %s", path);
    bool good = load(file, path);
    fclose(file);
    world.seen = now;
    world.loaded = good;
    return good;
}

const struct line *world_line(const char *verb, unsigned n)
{
    int found = verb_of(verb);
    return found >= 0 && n < world.counts[found] ? world.by_verb[found][n] : NULL;
}

const char *world_system(const char *key)
{
    const struct line *line;
    for (unsigned n = 0; (line = world_line("system", n)); n++)
        if (!strcmp(line->words[1], key))
            return line->words[2];
    return NULL;
}

long word(const struct line *line, unsigned place)
{
    char *end;
    if (place >= line->count)
        return complain("%s: too few words", line->words[0]), 0;
    long found = strtol(line->words[place], &end, 0);
    return *end ? complain("%s: no number: %s", line->words[0], line->words[place]), 0 : found;
}

double number_at(const char *text, double at)
{
    char *end;
    double value = strtod(text, &end), rate = 0;
    const char *epoch = world_system("epoch");
    if (*end == '+' || *end == '-')
        rate = strtod(end, &end), end += !strcmp(end, "/s") ? 2 : 0;
    if (*end)
        complain("no number: %s", text);
    return value + rate * (at - (epoch ? strtod(epoch, NULL) : at));
}

double engine_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *offset = world_system("clock_offset"), *frozen = world_system("frozen_at");
    if (frozen)
        return strtod(frozen, NULL);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 + (offset ? strtod(offset, NULL) : 0);
}
