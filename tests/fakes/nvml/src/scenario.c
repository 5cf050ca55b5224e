#include "scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "abi.h"

static struct {
    struct section *sections;
    unsigned count;
    double epoch;
    struct stat seen;
    bool loaded;
} world;

int complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("fake nvml: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return NVML_ERROR_UNKNOWN;
}

static void *grow(void *array, unsigned count, size_t size)
{
    void *grown = realloc(array, (count + 1) * size);
    if (!grown)
        abort();
    return grown;
}

static void release(struct section *sections, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < sections[i].count; j++)
            free(sections[i].entries[j].key);
        free(sections[i].entries);
    }
    free(sections);
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length && strchr(" \t\r\n", text[length - 1]))
        text[--length] = 0;
    return text;
}

static bool parse_header(char *line, struct section *out)
{
    memset(out, 0, sizeof *out);
    out->major = out->minor = -1;
    int used = 0;
    if (sscanf(line, "[%15[a-z]%n", out->kind, &used) != 1)
        return false;
    const char *rest = line + used;
    int more = 0;
    if (sscanf(rest, " %d.%d]%n", &out->major, &out->minor, &more) == 2 && more)
        return rest[more] == 0;
    out->minor = -1;
    if (sscanf(rest, " %d]%n", &out->major, &more) == 1 && more)
        return rest[more] == 0;
    return strcmp(rest, "]") == 0;
}

static bool has_numbers(const struct section *section)
{
    bool major = section->major >= 0, minor = section->minor >= 0;
    if (!strcmp(section->kind, "system"))
        return !major;
    if (!strcmp(section->kind, "gpu") || !strcmp(section->kind, "event"))
        return major && !minor;
    return minor; /* mig, gi, process */
}

static bool add_entry(struct section *section, char *line)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return false;
    *equals = 0;
    const char *key = trim(line), *value = trim(equals + 1);
    if (!key_is_known(section->kind, key) || scenario_text(section, key))
        return false;
    size_t key_size = strlen(key) + 1, value_size = strlen(value) + 1;
    struct entry entry = {.key = malloc(key_size + value_size)};
    if (!entry.key)
        abort();
    entry.value = entry.key + key_size;
    memcpy(entry.key, key, key_size);
    memcpy(entry.value, value, value_size);
    section->entries = grow(section->entries, section->count, sizeof entry);
    section->entries[section->count++] = entry;
    return true;
}

static bool is_repeated(const struct section *sections, unsigned count)
{
    const struct section *last = &sections[count];
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(sections[i].kind, last->kind) && sections[i].major == last->major && sections[i].minor == last->minor)
            return true;
    return false;
}

static bool parse(FILE *file, const char *path, struct section **sections, unsigned *count)
{
    char *line = NULL;
    size_t capacity = 0;
    bool good = true;
    for (unsigned number = 1; good && getline(&line, &capacity, file) >= 0; number++) {
        char *text = trim(line);
        if (!*text || *text == '#')
            continue;
        if (*text == '[') {
            *sections = grow(*sections, *count, sizeof **sections);
            struct section *section = &(*sections)[*count];
            good = parse_header(text, section) && has_numbers(section) && !is_repeated(*sections, *count);
            *count += good;
        } else {
            good = *count && add_entry(&(*sections)[*count - 1], text);
        }
        if (!good)
            complain("%s:%u: not a section or a key that may stand here, or there twice: %s", path, number, text);
    }
    free(line);
    return good;
}

static bool unchanged(const struct stat *now)
{
    return world.loaded && now->st_ino == world.seen.st_ino && now->st_size == world.seen.st_size &&
           now->st_mtim.tv_sec == world.seen.st_mtim.tv_sec && now->st_mtim.tv_nsec == world.seen.st_mtim.tv_nsec;
}

bool scenario_refresh(void)
{
    const char *path = getenv("FAKE_NVML_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now))
        return complain("FAKE_NVML_SCENARIO must name the scenario file (it is %s)", path ? path : "not set"), false;
    if (unchanged(&now))
        return true;
    FILE *file = fopen(path, "re");
    if (!file)
        return complain("cannot open %s", path), false;
    struct section *sections = NULL;
    unsigned count = 0;
    bool good = parse(file, path, &sections, &count);
    fclose(file);
    if (!good)
        return release(sections, count), false;
    release(world.sections, world.count);
    world.sections = sections;
    world.count = count;
    world.seen = now;
    world.loaded = true;
    world.epoch = (double)now.st_mtim.tv_sec + (double)now.st_mtim.tv_nsec / 1e9;
    const char *epoch = scenario_text(scenario_find("system", -1, -1), "epoch");
    if (epoch && !number_double(epoch, 0, &world.epoch))
        return complain("%s: epoch is no number", path), false;
    return true;
}

const struct section *scenario_find(const char *kind, int major, int minor)
{
    for (unsigned i = 0; i < world.count; i++) {
        const struct section *section = &world.sections[i];
        if (!strcmp(section->kind, kind) && section->major == major && section->minor == minor)
            return section;
    }
    return NULL;
}

const struct section *scenario_nth(const char *kind, unsigned n)
{
    for (unsigned i = 0; i < world.count; i++)
        if (!strcmp(world.sections[i].kind, kind) && n-- == 0)
            return &world.sections[i];
    return NULL;
}

unsigned scenario_gpu_count(void)
{
    unsigned count = 0;
    if (scenario_u32(scenario_find("system", -1, -1), "count", &count) == NVML_SUCCESS)
        return count;
    const struct section *gpu;
    for (unsigned n = 0; (gpu = scenario_nth("gpu", n)); n++)
        if ((unsigned)gpu->major + 1 > count)
            count = (unsigned)gpu->major + 1;
    return count;
}

const char *scenario_text(const struct section *section, const char *key)
{
    for (unsigned i = 0; section && i < section->count; i++)
        if (!strcmp(section->entries[i].key, key))
            return section->entries[i].value;
    return NULL;
}

double scenario_elapsed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - world.epoch;
}
