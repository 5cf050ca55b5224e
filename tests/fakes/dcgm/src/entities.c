/* GPUs, MIG instances, switches, CPUs and links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

#define BLANK 0x7ffffff0u

/* "gpu <id> <key> <value>" */
static const char *fact(unsigned gpu, const char *key)
{
    const struct line *line;
    for (unsigned n = 0; (line = world_line("gpu", n)); n++)
        if (word(line, 1) == (long)gpu && !strcmp(line->words[2], key))
            return line->words[3];
    return NULL;
}

static unsigned entities(int group, unsigned *ids, unsigned room)
{
    const struct line *line;
    unsigned count = 0;
    for (unsigned n = 0; (line = world_line("entity", n)); n++)
        if (word(line, 1) == group) {
            if (count < room)
                ids[count] = (unsigned)word(line, 2);
            count++;
        }
    return count;
}

DCGM_API int dcgmGetAllDevices(handle_t handle, unsigned ids[32], int *count)
{
    int code = begin_request(__func__, handle, "");
    if (code == OK)
        *count = (int)entities(GPU, ids, 32);
    return end(code);
}

DCGM_API int dcgmGetEntityGroupEntities(handle_t handle, int group, unsigned *ids, int *count, unsigned flags)
{
    (void)flags;
    int code = begin_request(__func__, handle, "");
    if (code == OK) {
        unsigned found = entities(group, ids, (unsigned)*count);
        code = found > (unsigned)*count ? TOO_SMALL : OK;
        *count = (int)found;
    }
    return end(code);
}

static void copy(unsigned gpu, const char *key, char *out)
{
    const char *text = fact(gpu, key);
    snprintf(out, 256, "%s", text ? text : "<<<NULL>>>");
}

DCGM_API int dcgmGetDeviceAttributes(handle_t handle, unsigned gpu, struct attributes *out)
{
    char detail[16];
    snprintf(detail, sizeof detail, "%u", gpu);
    int code = begin_request(__func__, handle, detail);
    const char *refused = fact(gpu, "rc"), *total = fact(gpu, "fb_total_mib");
    if (code == OK && out->version != VERSION(struct attributes, 3))
        code = VERSION_MISMATCH;
    if (code == OK && refused)
        code = atoi(refused);
    if (code != OK)
        return end(code);
    copy(gpu, "brand", out->identifiers.brand);
    copy(gpu, "name", out->identifiers.name);
    copy(gpu, "pci", out->identifiers.pci);
    copy(gpu, "serial", out->identifiers.serial);
    copy(gpu, "uuid", out->identifiers.uuid);
    copy(gpu, "vbios", out->identifiers.vbios);
    copy(gpu, "inforom", out->identifiers.inforom);
    copy(gpu, "driver", out->identifiers.driver);
    for (unsigned i = 1; i < 5; i++)
        out->memory[i] = BLANK;
    if (total)
        out->memory[2] = (unsigned)atoi(total);
    return end(OK);
}

/* "mig <group> <id> <parent group> <parent id> <gpu> <gi> <ci> <profile> <slices>" */
DCGM_API int dcgmGetGpuInstanceHierarchy(handle_t handle, struct hierarchy *out)
{
    int code = begin_request(__func__, handle, "");
    const struct line *line;
    if (code == OK && out->version != VERSION(struct hierarchy, 2))
        code = VERSION_MISMATCH;
    if (code != OK)
        return end(code);
    memset(out, 0, sizeof *out); /* the version, too, as the real one does */
    for (unsigned n = 0; (line = world_line("mig", n)); n++) {
        struct mig_node *node = &out->nodes[out->count++];
        node->entity = (struct pair){(int)word(line, 1), (unsigned)word(line, 2)};
        node->parent = (struct pair){(int)word(line, 3), (unsigned)word(line, 4)};
        const char *uuid = fact((unsigned)word(line, 5), "uuid");
        snprintf(node->uuid, sizeof node->uuid, "%s", uuid ? uuid : "");
        node->index = (unsigned)word(line, 5);
        node->gi = (unsigned)word(line, 6);
        node->ci = (unsigned)word(line, 7);
        node->profile = (unsigned)word(line, 8);
        node->slices = (unsigned)word(line, 9);
    }
    return end(OK);
}

/* "cores <cpu> <first> <number>" */
DCGM_API int dcgmGetCpuHierarchy(handle_t handle, struct cpus *out)
{
    int code = begin_request(__func__, handle, "");
    const struct line *line;
    if (code == OK && out->version != VERSION(struct cpus, 1))
        code = VERSION_MISMATCH;
    if (code == OK && !world_line("cores", 0))
        code = NOT_SUPPORTED;
    for (unsigned n = 0; code == OK && (line = world_line("cores", n)); n++) {
        unsigned place = out->count++;
        out->cpus[place].id = (unsigned)word(line, 1);
        for (long core = word(line, 2); core < word(line, 2) + word(line, 3); core++)
            out->cpus[place].cores.mask[core / 64] |= UINT64_C(1) << core % 64;
    }
    return end(code);
}

/* "links <group> <id> <a digit a link>": 0 not supported, 1 disabled, 2 down, 3 up. */
static unsigned fill(int group, unsigned *at, unsigned size, unsigned most, unsigned room)
{
    const struct line *line;
    unsigned count = 0;
    for (unsigned n = 0; (line = world_line("links", n)) && count < most; n++)
        if (word(line, 1) == group) {
            unsigned *slot = at + count++ * size;
            slot[0] = (unsigned)word(line, 2);
            for (unsigned i = 0; i < room && line->words[3][i]; i++)
                slot[1 + i] = (unsigned)(line->words[3][i] - '0');
        }
    return count;
}

#define FILL(type) \
    do { \
        type *out = any; \
        out->gpu_count = fill(GPU, &out->gpus[0].id, sizeof out->gpus[0] / 4, 32, sizeof out->gpus[0] / 4 - 1); \
        out->switch_count = \
            fill(SWITCH, &out->switches[0].id, sizeof out->switches[0] / 4, 12, sizeof out->switches[0] / 4 - 1); \
    } while (0)

DCGM_API int dcgmGetNvLinkLinkStatus(handle_t handle, void *any)
{
    int code = begin_request(__func__, handle, "");
    unsigned version = code == OK ? *(unsigned *)any : 0;
    bool newest = generation("library4") == 2;
    if (code != OK)
        return end(code);
    if (DCGM_MAJOR == 3 && version == VERSION(struct links_v3, 3))
        FILL(struct links_v3);
    else if (DCGM_MAJOR == 4 && version == VERSION(struct links_v4, 4))
        FILL(struct links_v4);
    else if (DCGM_MAJOR == 4 && newest && version == VERSION(struct links_v5, 5))
        FILL(struct links_v5);
    else
        code = VERSION_MISMATCH;
    return end(code);
}
