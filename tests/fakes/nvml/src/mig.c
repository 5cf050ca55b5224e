/* Multi-instance GPUs: MIG devices are compute instances, each inside a GPU instance. */
#include <stdio.h>

#include "call.h"

#define MAX_INSTANCES 1024

struct gpu_instance {
    int gpu;
    unsigned id;
};

static struct gpu_instance instances[MAX_INSTANCES];
static unsigned used;

NVML_API int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    return answer_two(__func__, device, "mig_mode", current, "mig_pending", pending);
}

ANSWER_U32(nvmlDeviceGetMaxMigDeviceCount, "mig_max")
ANSWER_U32(nvmlDeviceGetGpuInstanceId, "gi")
ANSWER_U32(nvmlDeviceGetComputeInstanceId, "ci")

NVML_API int nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        *out = is_mig(section);
    return end(rc);
}

NVML_API int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out)
{
    const struct section *section;
    unsigned most, enabled;
    char detail[16];
    snprintf(detail, sizeof detail, "%u", index);
    int rc = begin(__func__, device, detail, &section);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "mig_mode", &enabled);
    if (rc == NVML_SUCCESS)
        rc = enabled ? scenario_u32(section, "mig_max", &most) : NVML_ERROR_NOT_SUPPORTED;
    if (rc == NVML_SUCCESS && (!out || index >= most))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc != NVML_SUCCESS)
        return end(rc);
    const struct section *mig = scenario_find("mig", section->major, (int)index);
    if (!mig)
        return end(NVML_ERROR_NOT_FOUND);
    *out = handle_of(mig);
    return end(*out ? NVML_SUCCESS : NVML_ERROR_UNKNOWN);
}

NVML_API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *out)
{
    const struct section *section;
    int rc = begin(__func__, mig, NULL, &section);
    if (rc == NVML_SUCCESS && (!out || !is_mig(section)))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    const struct section *parent = rc == NVML_SUCCESS ? parent_of(section) : NULL;
    if (rc == NVML_SUCCESS && !parent)
        rc = complain("[mig %d.%d] has no [gpu %d]", section->major, section->minor, section->major);
    if (rc == NVML_SUCCESS)
        *out = handle_of(parent);
    return end(rc);
}

NVML_API int nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc != NVML_SUCCESS)
        return end(rc);
    const struct {
        const char *key;
        unsigned *target;
    } counts[] = {
        {"attr.sm", &out->sm}, {"attr.copy_engines", &out->copy_engines}, {"attr.decoders", &out->decoders},
        {"attr.encoders", &out->encoders}, {"attr.jpegs", &out->jpegs}, {"attr.ofas", &out->ofas},
        {"attr.gi_slices", &out->gi_slices}, {"attr.ci_slices", &out->ci_slices},
    };
    for (unsigned i = 0; rc == NVML_SUCCESS && i < sizeof counts / sizeof *counts; i++)
        rc = scenario_u32(section, counts[i].key, counts[i].target);
    return end(rc == NVML_SUCCESS ? scenario_u64(section, "attr.memory_mb", &out->memory_mb) : rc);
}

/* A GPU instance is known by a [gi] section of its own, or by the MIG device inside it. */
static const struct section *find_instance(int gpu, unsigned id)
{
    const struct section *section = scenario_find("gi", gpu, (int)id);
    for (unsigned n = 0; !section; n++) {
        const struct section *mig = scenario_nth("mig", n);
        unsigned own;
        if (!mig)
            return NULL;
        if (mig->major == gpu && scenario_u32(mig, "gi", &own) == NVML_SUCCESS && own == id)
            section = mig;
    }
    return section;
}

static nvmlGpuInstance_t instance_handle(int gpu, unsigned id)
{
    for (unsigned i = 0; i < used; i++)
        if (instances[i].gpu == gpu && instances[i].id == id)
            return &instances[i];
    if (used == MAX_INSTANCES)
        return NULL;
    instances[used] = (struct gpu_instance){gpu, id};
    return &instances[used++];
}

NVML_API int nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *out)
{
    const struct section *section;
    unsigned enabled;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!out || is_mig(section)))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "mig_mode", &enabled);
    if (rc == NVML_SUCCESS && !enabled)
        rc = NVML_ERROR_NOT_SUPPORTED;
    if (rc == NVML_SUCCESS && !find_instance(section->major, id))
        rc = NVML_ERROR_NOT_FOUND;
    if (rc != NVML_SUCCESS)
        return end(rc);
    *out = instance_handle(section->major, id);
    return end(*out ? NVML_SUCCESS : NVML_ERROR_UNKNOWN);
}

static int fill_instance(const struct gpu_instance *instance, nvmlGpuInstanceInfo_t *out)
{
    const struct section *gpu = scenario_find("gpu", instance->gpu, -1);
    const struct section *section = gpu ? find_instance(instance->gpu, instance->id) : NULL;
    if (!section)
        return NVML_ERROR_INVALID_ARGUMENT;
    out->device = handle_of(gpu);
    out->id = instance->id;
    int rc = scenario_u32(section, "profile_id", &out->profile_id);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "placement_start", &out->placement_start);
    return rc == NVML_SUCCESS ? scenario_u32(section, "placement_size", &out->placement_size) : rc;
}

NVML_API int nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out)
{
    int rc = begin_system(__func__, NULL);
    uintptr_t offset = (uintptr_t)instance - (uintptr_t)instances;
    if (rc == NVML_SUCCESS && (!out || offset >= used * sizeof *instances || offset % sizeof *instances))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    return end(rc == NVML_SUCCESS ? fill_instance(instance, out) : rc);
}
