#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static struct {
    char path[4096];
    struct section *sections;
    unsigned count;
    struct stat seen;
} world;

static void *grown(void *array, unsigned count, size_t size)
{
    void *found = realloc(array, (count + 1) * size);
    if (!found)
        abort();
    return found;
}

static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length && strchr(" \t\r\n", text[length - 1]))
        text[--length] = 0;
    return text;
}

static void forget(void)
{
    for (unsigned i = 0; i < world.count; i++) {
        for (unsigned j = 0; j < world.sections[i].count; j++)
            free(world.sections[i].entries[j].key);
        free(world.sections[i].entries);
    }
    free(world.sections);
    world.sections = NULL;
    world.count = 0;
}

static bool add_section(const char *line)
{
    struct section section = {.number = -1};
    if (sscanf(line, "[%15[a-z] %d]", section.kind, &section.number) < 1)
        return false;
    world.sections = grown(world.sections, world.count, sizeof section);
    world.sections[world.count++] = section;
    return true;
}

static bool add_entry(char *line)
{
    char *equals = strchr(line, '=');
    if (!equals || !world.count)
        return false;
    *equals = 0;
    struct section *section = &world.sections[world.count - 1];
    struct entry entry = {.key = strdup(trimmed(line))};
    const char *value = trimmed(equals + 1);
    size_t size = strlen(entry.key) + 1;
    entry.key = grown(entry.key, (unsigned)(size + strlen(value)), 1);
    entry.value = strcpy(entry.key + size, value);
    section->entries = grown(section->entries, section->count, sizeof entry);
    section->entries[section->count++] = entry;
    return true;
}

static bool load(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char *line = NULL;
    size_t capacity = 0;
    bool good = true;
    forget();
    while (good && getline(&line, &capacity, file) >= 0) {
        char *text = trimmed(line);
        if (*text && *text != '#')
            good = *text == '[' ? add_section(text) : add_entry(text);
    }
    free(line);
    fclose(file);
    return good;
}

bool scenario_refresh(void)
{
    const char *path = getenv("FAKE_HLML_SCENARIO");
    struct stat now;
    if (!path || strlen(path) >= sizeof world.path || stat(path, &now)) {
        fprintf(stderr, "fake hlml: FAKE_HLML_SCENARIO must name the scenario file (it is %s)\n", path ? path : "not set");
        return false;
    }
    if (!strcmp(path, world.path) && now.st_ino == world.seen.st_ino && now.st_size == world.seen.st_size &&
        now.st_mtim.tv_sec == world.seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == world.seen.st_mtim.tv_nsec)
        return true;
    if (!load(path)) {
        fprintf(stderr, "fake hlml: %s is no scenario\n", path);
        world.path[0] = 0;
        return false;
    }
    strcpy(world.path, path);
    world.seen = now;
    return true;
}

const struct section *scenario_find(const char *kind, int number)
{
    for (unsigned i = 0; i < world.count; i++)
        if (!strcmp(world.sections[i].kind, kind) && world.sections[i].number == number)
            return &world.sections[i];
    return NULL;
}

const struct section *scenario_nth(const char *kind, unsigned n)
{
    for (unsigned i = 0; i < world.count; i++)
        if (!strcmp(world.sections[i].kind, kind) && n-- == 0)
            return &world.sections[i];
    return NULL;
}

const char *scenario_text(const struct section *section, const char *key)
{
    for (unsigned i = 0; section && i < section->count; i++)
        if (!strcmp(section->entries[i].key, key))
            return section->entries[i].value;
    return NULL;
}

static double elapsed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *epoch = scenario_text(scenario_find("system", -1), "epoch");
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (epoch ? strtod(epoch, NULL) : 0);
}

bool scenario_number(const struct section *section, const char *key, uint64_t *out)
{
    const char *text = scenario_text(section, key);
    if (!text)
        return false;
    char *rest;
    *out = strtoull(text, &rest, 0);
    if (*rest == '+')
        *out += (uint64_t)(strtod(rest + 1, NULL) * elapsed());
    return true;
}
