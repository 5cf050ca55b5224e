/* Device handles: how a caller gets one, and what it stands for when it comes back. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "call.h"

#define MAX_HANDLES 1024

/* A handle names a GPU by its index, a MIG device by parent, slot and uuid: after a re-partition it is stale. */
struct handle {
    int gpu, slot;
    char uuid[96];
};

static struct handle handles[MAX_HANDLES];
static unsigned used;

bool is_mig(const struct section *section)
{
    return section->minor >= 0;
}

const struct section *parent_of(const struct section *section)
{
    return section && is_mig(section) ? scenario_find("gpu", section->major, -1) : NULL;
}

nvmlDevice_t handle_of(const struct section *section)
{
    struct handle wanted = {.gpu = section->major, .slot = section->minor};
    const char *uuid = scenario_text(section, "uuid");
    if (is_mig(section) && uuid)
        snprintf(wanted.uuid, sizeof wanted.uuid, "%s", uuid);
    for (unsigned i = 0; i < used; i++)
        if (handles[i].gpu == wanted.gpu && handles[i].slot == wanted.slot && !strcmp(handles[i].uuid, wanted.uuid))
            return &handles[i];
    if (used == MAX_HANDLES) {
        complain("more than %d devices in one process", MAX_HANDLES);
        return NULL;
    }
    handles[used] = wanted;
    return &handles[used++];
}

int handle_resolve(nvmlDevice_t device, const struct section **section)
{
    *section = NULL;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= used * sizeof *handles || offset % sizeof *handles)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->slot < 0) {
        *section = scenario_find("gpu", device->gpu, -1);
        return *section ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
    }
    const struct section *mig = scenario_find("mig", device->gpu, device->slot);
    const char *uuid = mig ? scenario_text(mig, "uuid") : NULL;
    if (!mig || strcmp(uuid ? uuid : "", device->uuid))
        return NVML_ERROR_INVALID_ARGUMENT;
    *section = mig;
    return NVML_SUCCESS;
}

/* Gives the handle out, unless the scenario makes this call fail for this device. */
static int hand_out(const char *function, const struct section *section, nvmlDevice_t *out)
{
    int rc = behave(function, section, parent_of(section));
    if (rc != NVML_SUCCESS)
        return rc;
    *out = handle_of(section);
    return *out ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

NVML_API int nvmlDeviceGetCount_v2(unsigned *count)
{
    int rc = begin_system(__func__, NULL);
    if (rc == NVML_SUCCESS && !count)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        *count = scenario_gpu_count();
    return end(rc);
}

NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    char detail[16];
    snprintf(detail, sizeof detail, "%u", index);
    int rc = begin_system(__func__, detail);
    if (rc != NVML_SUCCESS)
        return end(rc);
    if (!device || index >= scenario_gpu_count())
        return end(NVML_ERROR_INVALID_ARGUMENT);
    const struct section *gpu = scenario_find("gpu", (int)index, -1);
    return end(gpu ? hand_out(__func__, gpu, device) : NVML_ERROR_GPU_NOT_FOUND);
}

static const struct section *find_by_uuid(const char *kind, const char *uuid)
{
    const struct section *section;
    for (unsigned n = 0; (section = scenario_nth(kind, n)); n++) {
        const char *own = scenario_text(section, "uuid");
        if (own && !strcmp(own, uuid))
            return section;
    }
    return NULL;
}

NVML_API int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    int rc = begin_system(__func__, uuid);
    if (rc != NVML_SUCCESS)
        return end(rc);
    if (!uuid || !device)
        return end(NVML_ERROR_INVALID_ARGUMENT);
    const struct section *found = find_by_uuid("gpu", uuid);
    if (!found)
        found = find_by_uuid("mig", uuid);
    return end(found ? hand_out(__func__, found, device) : NVML_ERROR_NOT_FOUND);
}

struct address {
    unsigned domain, bus, device, function;
};

static bool parse_address(const char *text, struct address *out)
{
    int used_up = 0;
    return text &&
           sscanf(text, "%x:%x:%x.%x%n", &out->domain, &out->bus, &out->device, &out->function, &used_up) == 4 &&
           text[used_up] == 0;
}

NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    int rc = begin_system(__func__, NULL);
    if (rc != NVML_SUCCESS)
        return end(rc);
    struct address wanted, own;
    if (!device || !parse_address(bus_id, &wanted))
        return end(NVML_ERROR_INVALID_ARGUMENT);
    const struct section *gpu;
    for (unsigned n = 0; (gpu = scenario_nth("gpu", n)); n++)
        if (parse_address(scenario_text(gpu, "pci"), &own) && !memcmp(&own, &wanted, sizeof own))
            return end(hand_out(__func__, gpu, device));
    return end(NVML_ERROR_NOT_FOUND);
}

static int fill_pci(const struct section *section, nvmlPciInfo_t *out)
{
    struct address address;
    const char *text = scenario_text(section, "pci");
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!parse_address(text, &address) || address.bus > 0xFF || address.device > 0x1F || address.function > 7)
        return complain("pci must look like 00000000:1A:00.0, not %s", text);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.%X", address.domain & 0xFFFF,
             address.bus & 0xFF, address.device & 0x1F, address.function & 7);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.%X", address.domain, address.bus, address.device,
             address.function);
    out->domain = address.domain;
    out->bus = address.bus;
    out->device = address.device;
    int rc = scenario_u32(section, "pci_device_id", &out->device_id);
    return rc == NVML_SUCCESS ? scenario_u32(section, "pci_subsystem_id", &out->subsystem_id) : rc;
}

NVML_API int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    return end(rc == NVML_SUCCESS ? fill_pci(section, out) : rc);
}
