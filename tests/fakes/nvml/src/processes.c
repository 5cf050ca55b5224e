/* Processes on a device, in every record layout that drivers have used. */
#include <stdio.h>
#include <string.h>

#include "call.h"

enum kind { COMPUTE, GRAPHICS, MPS, ANY };
static const char *const kind_names[] = {"compute", "graphics", "mps"};

/* usedGpuMemory of a process whose figure is not available. */
#define UNKNOWN_MEMORY UINT64_MAX

/* The next process of the kind on the device after *cursor; a MIG device has those of its own instance only. */
static const struct section *next_process(const struct section *device, enum kind kind, unsigned *cursor)
{
    const struct section *process;
    while ((process = scenario_nth("process", (*cursor)++))) {
        const char *own = scenario_text(process, "kind");
        if (process->major != device->major || (kind != ANY && strcmp(own ? own : "compute", kind_names[kind])))
            continue;
        if (!is_mig(device))
            return process;
        unsigned gi, ci, own_gi = NO_INSTANCE, own_ci = NO_INSTANCE;
        scenario_u32(process, "gi", &own_gi);
        scenario_u32(process, "ci", &own_ci);
        if (!scenario_u32(device, "gi", &gi) && !scenario_u32(device, "ci", &ci) && gi == own_gi && ci == own_ci)
            return process;
    }
    return NULL;
}

/* The device answers at all: it says so, or the scenario puts a process on it. */
static bool supports_processes(const struct section *device)
{
    const struct section *gpu = is_mig(device) ? parent_of(device) : device, *process;
    if (scenario_text(gpu, "processes"))
        return true;
    for (unsigned n = 0; (process = scenario_nth("process", n)); n++)
        if (process->major == device->major)
            return true;
    return false;
}

static int read_process(const struct section *process, nvmlProcessDetail_t *out)
{
    memset(out, 0, sizeof *out); /* the padding is copied out, too */
    out->used = UNKNOWN_MEMORY;
    out->gi = out->ci = NO_INSTANCE;
    int rc = scenario_u32(process, "pid", &out->pid);
    if (rc != NVML_SUCCESS)
        return complain("[process %d.%d] needs a pid", process->major, process->minor);
    scenario_u64(process, "memory", &out->used);
    scenario_u64(process, "protected_memory", &out->protected_used);
    scenario_u32(process, "gi", &out->gi);
    scenario_u32(process, "ci", &out->ci);
    return NVML_SUCCESS;
}

/* The three layouts are prefixes of one another, but for the first, whose record ends after the memory. */
static int list_processes(const struct section *device, enum kind kind, unsigned *count, char *records, unsigned stride)
{
    unsigned room = records ? *count : 0, cursor = 0, found = 0;
    const struct section *process;
    while ((process = next_process(device, kind, &cursor))) {
        nvmlProcessDetail_t detail;
        int rc = read_process(process, &detail);
        if (rc != NVML_SUCCESS)
            return rc;
        if (found < room)
            memcpy(records + found * stride, &detail, stride);
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static int running(const char *function, nvmlDevice_t device, enum kind kind, unsigned *count, void *records, unsigned stride)
{
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    if (rc == NVML_SUCCESS && !count)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && !supports_processes(section))
        rc = NVML_ERROR_NOT_SUPPORTED;
    return end(rc == NVML_SUCCESS ? list_processes(section, kind, count, records, stride) : rc);
}

/* Early R535 drivers wrote 32 bytes a record under the third version's name. */
static int running_v3(const char *function, nvmlDevice_t device, enum kind kind, unsigned *count, void *records)
{
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    unsigned stride = sizeof(nvmlProcessInfo_t);
    if (rc == NVML_SUCCESS)
        scenario_u32(scenario_find("system", -1, -1), "process_record_bytes", &stride);
    if (rc == NVML_SUCCESS && (!count || (stride != sizeof(nvmlProcessInfo_t) && stride != sizeof(nvmlProcessDetail_t))))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && !supports_processes(section))
        rc = NVML_ERROR_NOT_SUPPORTED;
    return end(rc == NVML_SUCCESS ? list_processes(section, kind, count, records, stride) : rc);
}

#define RUNNING(name, kind)                                                                              \
    NVML_API int name(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *records)               \
    {                                                                                                    \
        return running(#name, device, kind, count, records, sizeof *records);                            \
    }                                                                                                    \
    NVML_API int name##_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *records)             \
    {                                                                                                    \
        return running(#name "_v2", device, kind, count, records, sizeof *records);                      \
    }                                                                                                    \
    NVML_API int name##_v3(nvmlDevice_t device, unsigned *count, void *records)                          \
    {                                                                                                    \
        return running_v3(#name "_v3", device, kind, count, records);                                    \
    }

RUNNING(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

NVML_API int nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!list || list->mode > ANY))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && list->version != VERSION_WORD(nvmlProcessDetailList_t, 1))
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (rc == NVML_SUCCESS && !supports_processes(section))
        rc = NVML_ERROR_NOT_SUPPORTED;
    if (rc == NVML_SUCCESS)
        rc = list_processes(section, (enum kind)list->mode, &list->count, (char *)list->records, sizeof *list->records);
    return end(rc);
}

NVML_API int nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device, nvmlConfComputeMemSizeInfo_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u64(section, "conf.protected_kib", &out->protected_kib) : NVML_ERROR_INVALID_ARGUMENT;
    return end(rc == NVML_SUCCESS ? scenario_u64(section, "conf.unprotected_kib", &out->unprotected_kib) : rc);
}

/* A process has a utilization sample when the scenario gives its four percentages. */
static bool read_sample(const struct section *process, uint64_t last_seen, nvmlProcessUtilization_t *out)
{
    memset(out, 0, sizeof *out);
    return scenario_u32(process, "pid", &out->pid) == NVML_SUCCESS &&
           scenario_u32(process, "sm", &out->sm) == NVML_SUCCESS &&
           scenario_u32(process, "mem", &out->mem) == NVML_SUCCESS &&
           scenario_u32(process, "enc", &out->enc) == NVML_SUCCESS &&
           scenario_u32(process, "dec", &out->dec) == NVML_SUCCESS &&
           scenario_u64(process, "timestamp_us", &out->timestamp_us) == NVML_SUCCESS && out->timestamp_us > last_seen;
}

static int list_samples(const struct section *device, nvmlProcessUtilization_t *out, unsigned *count, uint64_t last_seen)
{
    unsigned room = out ? *count : 0, cursor = 0, found = 0;
    const struct section *process;
    while ((process = next_process(device, ANY, &cursor))) {
        nvmlProcessUtilization_t sample;
        if (!read_sample(process, last_seen, &sample))
            continue;
        if (found < room)
            out[found] = sample;
        found++;
    }
    *count = found;
    if (!found)
        return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

NVML_API int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilization_t *out, unsigned *count, uint64_t last_seen)
{
    const struct section *section;
    unsigned mig = 0;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !count)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        scenario_u32(section, "mig_mode", &mig);
    if (rc == NVML_SUCCESS && (mig || is_mig(section) || !supports_processes(section)))
        rc = NVML_ERROR_NOT_SUPPORTED;
    return end(rc == NVML_SUCCESS ? list_samples(section, out, count, last_seen) : rc);
}

NVML_API int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    int rc = begin_system(__func__, NULL);
    if (rc != NVML_SUCCESS)
        return end(rc);
    const struct section *process;
    for (unsigned n = 0; (process = scenario_nth("process", n)); n++) {
        unsigned own;
        if (scenario_u32(process, "pid", &own) == NVML_SUCCESS && own == pid)
            return end(copy_text(scenario_text(process, "name"), name, size));
    }
    return end(NVML_ERROR_NOT_FOUND);
}
