/* What ties devices together: NVLink, peer access, the NVLink fabric, the place in the rack. */
#include <stdio.h>
#include <string.h>

#include "call.h"

static int link_u32(const char *function, nvmlDevice_t device, unsigned link, const char *what, unsigned *out)
{
    char key[48];
    snprintf(key, sizeof key, "nvlink.%u.%s", link, what);
    if (link < MAX_LINKS)
        return answer_u32(function, device, key, out);
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    return end(rc == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : rc);
}

NVML_API int nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *out)
{
    return link_u32(__func__, device, link, "state", out);
}

NVML_API int nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *out)
{
    return link_u32(__func__, device, link, "version", out);
}

NVML_API int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *out)
{
    return link_u32(__func__, device, link, "remote_type", out);
}

NVML_API int nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, int counter, uint64_t *out)
{
    char key[48];
    snprintf(key, sizeof key, "nvlink.%u.error.%d", link, counter);
    return answer_u64(__func__, device, key, out);
}

/* "p2p.<peer>.<index>", else "p2p.<peer>" for every index. */
static int p2p_status(const struct section *one, const struct section *other, int index, int *out)
{
    char key[48];
    unsigned status;
    snprintf(key, sizeof key, "p2p.%d.%d", other->major, index);
    int rc = scenario_u32(one, key, &status);
    if (rc == NVML_ERROR_NOT_SUPPORTED) {
        snprintf(key, sizeof key, "p2p.%d", other->major);
        rc = scenario_u32(one, key, &status);
    }
    if (rc == NVML_SUCCESS)
        *out = (int)status;
    return rc;
}

NVML_API int nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, int index, int *out)
{
    const struct section *one, *other;
    int rc = begin(__func__, device, NULL, &one);
    if (rc == NVML_SUCCESS)
        rc = handle_resolve(peer, &other);
    if (rc == NVML_SUCCESS && (!out || index < 0 || index > 5))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    return end(rc == NVML_SUCCESS ? p2p_status(one, other, index, out) : rc);
}

struct fabric {
    unsigned char uuid[16];
    unsigned status, clique, state;
};

static int read_fabric(const struct section *section, struct fabric *out)
{
    int rc = copy_hex(section, "fabric.uuid", out->uuid, sizeof out->uuid);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "fabric.status", &out->status);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "fabric.clique", &out->clique);
    return rc == NVML_SUCCESS ? scenario_u32(section, "fabric.state", &out->state) : rc;
}

static int fill_fabric(const struct section *section, nvmlGpuFabricInfoV_t *out)
{
    struct fabric fabric;
    unsigned newest = 3, mask, summary = 0;
    scenario_u32(section, "fabric.max_version", &newest);
    if (out->version != FABRIC_V2 && (out->version != FABRIC_V3 || newest < 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int rc = read_fabric(section, &fabric);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "fabric.health_mask", &mask);
    if (rc == NVML_SUCCESS && out->version == FABRIC_V3)
        rc = scenario_u32(section, "fabric.health_summary", &summary);
    if (rc != NVML_SUCCESS)
        return rc;
    memcpy(out->cluster_uuid, fabric.uuid, sizeof fabric.uuid);
    out->status = (int)fabric.status;
    out->clique_id = fabric.clique;
    out->state = (unsigned char)fabric.state;
    out->health_mask = mask;
    if (out->version == FABRIC_V3)
        out->health_summary = (unsigned char)summary;
    return NVML_SUCCESS;
}

NVML_API int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    return end(rc == NVML_SUCCESS ? fill_fabric(section, out) : rc);
}

/* The unversioned predecessor. */
NVML_API int nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    const struct section *section;
    struct fabric fabric;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? read_fabric(section, &fabric) : NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS) {
        memcpy(out->cluster_uuid, fabric.uuid, sizeof fabric.uuid);
        out->status = (int)fabric.status;
        out->clique_id = fabric.clique;
        out->state = (unsigned char)fabric.state;
    }
    return end(rc);
}

static int read_byte(const struct section *section, const char *key, unsigned char *out)
{
    unsigned value;
    int rc = scenario_u32(section, key, &value);
    if (rc == NVML_SUCCESS)
        *out = (unsigned char)value;
    return rc;
}

static int fill_platform(const struct section *section, nvmlPlatformInfo_t *out)
{
    if (out->version != PLATFORM_V1 && out->version != PLATFORM_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int rc = copy_hex(section, "platform.ib_guid", out->ib_guid, sizeof out->ib_guid);
    if (rc == NVML_SUCCESS && out->version == PLATFORM_V1)
        rc = copy_hex(section, "platform.rack_guid", out->rack_or_chassis, sizeof out->rack_or_chassis);
    if (rc == NVML_SUCCESS && out->version == PLATFORM_V2)
        rc = copy_text(scenario_text(section, "platform.chassis_serial"), (char *)out->rack_or_chassis,
                       sizeof out->rack_or_chassis);
    if (rc == NVML_SUCCESS)
        rc = read_byte(section, "platform.slot", &out->slot);
    if (rc == NVML_SUCCESS)
        rc = read_byte(section, "platform.tray", &out->tray);
    if (rc == NVML_SUCCESS)
        rc = read_byte(section, "platform.host", &out->host);
    if (rc == NVML_SUCCESS)
        rc = read_byte(section, "platform.peer_type", &out->peer_type);
    return rc == NVML_SUCCESS ? read_byte(section, "platform.module_id", &out->module_id) : rc;
}

NVML_API int nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    return end(rc == NVML_SUCCESS ? fill_platform(section, out) : rc);
}
