/* The system's versions, the library's messages, and who a device is. */
#include <stdio.h>
#include <string.h>

#include "call.h"

static const struct {
    int code;
    const char *text;
} messages[] = {
    {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"}, {4, "Insufficient Permissions"},
    {5, "Already Initialized"}, {6, "Not Found"}, {7, "Insufficient Size"}, {8, "Insufficient External Power"},
    {9, "Driver Not Loaded"}, {10, "Timeout"}, {11, "Interrupt Request Issue"}, {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"}, {14, "Corrupted infoROM"}, {15, "GPU is lost"}, {16, "GPU requires reset"},
    {17, "The operating system has blocked the request"}, {18, "RM has detected an NVML/RM version mismatch."},
    {19, "In use by another client"}, {20, "Insufficient Memory"}, {21, "No data"},
    {22, "vGPU operation is not supported with ECC enabled"}, {23, "Insufficient Resources"},
    {24, "Frequency Not Supported"}, {25, "Argument Version Mismatch"}, {26, "Deprecated"}, {27, "Not Ready"},
    {28, "GPU Not Found"}, {29, "Invalid State"}, {30, "Reset Type Not Supported"},
};

/* Like the real one, it works before the library is initialized. */
NVML_API const char *nvmlErrorString(int code)
{
    for (unsigned i = 0; i < sizeof messages / sizeof *messages; i++)
        if (messages[i].code == code)
            return messages[i].text;
    return "Unknown Error";
}

static int system_text(const char *function, const char *key, char *out, unsigned size)
{
    int rc = begin_system(function, NULL);
    return end(rc == NVML_SUCCESS ? copy_text(scenario_text(scenario_find("system", -1, -1), key), out, size) : rc);
}

NVML_API int nvmlSystemGetDriverVersion(char *out, unsigned size) { return system_text(__func__, "driver_version", out, size); }

NVML_API int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return system_text(__func__, "nvml_version", out, size); }

static int cuda_version(const char *function, int *out)
{
    int rc = begin_system(function, NULL);
    unsigned version = 0;
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u32(scenario_find("system", -1, -1), "cuda", &version) : NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        *out = (int)version;
    return end(rc);
}

NVML_API int nvmlSystemGetCudaDriverVersion(int *out) { return cuda_version(__func__, out); }

NVML_API int nvmlSystemGetCudaDriverVersion_v2(int *out) { return cuda_version(__func__, out); }

#define ANSWER_TEXT(function, key)                                     \
    NVML_API int function(nvmlDevice_t device, char *out, unsigned size) \
    {                                                                  \
        return answer_text(#function, device, key, out, size);         \
    }

ANSWER_TEXT(nvmlDeviceGetName, "name")
ANSWER_TEXT(nvmlDeviceGetUUID, "uuid")
ANSWER_TEXT(nvmlDeviceGetSerial, "serial")
ANSWER_TEXT(nvmlDeviceGetVbiosVersion, "vbios")
ANSWER_TEXT(nvmlDeviceGetInforomImageVersion, "inforom.image")
ANSWER_TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")

NVML_API int nvmlDeviceGetInforomVersion(nvmlDevice_t device, int object, char *out, unsigned size)
{
    static const char *const keys[] = {"inforom.oem", "inforom.ecc", "inforom.power"};
    return answer_text(__func__, device, object >= 0 && object < 3 ? keys[object] : "", out, size);
}

/* The one text call without a size. */
NVML_API int nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out)
{
    return answer_text(__func__, device, "gsp_version", out, 64);
}

ANSWER_U32(nvmlDeviceGetMinorNumber, "minor")
ANSWER_U32(nvmlDeviceGetBrand, "brand")
ANSWER_U32(nvmlDeviceGetArchitecture, "architecture")
ANSWER_U32(nvmlDeviceGetModuleId, "module_id")
ANSWER_U32(nvmlDeviceGetNumGpuCores, "cores")
ANSWER_U32(nvmlDeviceGetMemoryBusWidth, "memory_bus_width")
ANSWER_U32(nvmlDeviceGetNumaNodeId, "numa_node")
ANSWER_U32(nvmlDeviceGetPersistenceMode, "persistence_mode")
ANSWER_U32(nvmlDeviceGetComputeMode, "compute_mode")
ANSWER_U32(nvmlDeviceGetVirtualizationMode, "virtualization_mode")

/* The index under which the handle can be had again: for a MIG device its slot. */
NVML_API int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        *out = (unsigned)(is_mig(section) ? section->minor : section->major);
    return end(rc);
}

NVML_API int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc != NVML_SUCCESS)
        return end(rc);
    const char *text = scenario_text(section, "cuda_cc");
    if (!text)
        return end(NVML_ERROR_NOT_SUPPORTED);
    if (!major || !minor)
        return end(NVML_ERROR_INVALID_ARGUMENT);
    return end(sscanf(text, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : complain("cuda_cc must look like 9.0, not %s", text));
}

/* One bit a NUMA node: the scenario's value is the first word, the caller's further words are cleared. */
NVML_API int nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, unsigned long *out, unsigned scope)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!out || !words || scope > 1))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    uint64_t mask = 0;
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "memory_affinity", &mask);
    if (rc == NVML_SUCCESS) {
        memset(out, 0, words * sizeof *out);
        out[0] = mask;
    }
    return end(rc);
}

static int license_feature(const struct section *section, unsigned index, nvmlGridLicensableFeature_t *out)
{
    char key[40];
    unsigned code;
    snprintf(key, sizeof key, "grid.%u.code", index);
    int rc = scenario_u32(section, key, &code);
    if (rc != NVML_SUCCESS)
        return rc;
    out->code = (int)code;
    snprintf(key, sizeof key, "grid.%u.state", index);
    rc = scenario_u32(section, key, &out->state);
    snprintf(key, sizeof key, "grid.%u.enabled", index);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, key, &out->enabled);
    snprintf(key, sizeof key, "grid.%u.product", index);
    if (rc == NVML_SUCCESS)
        rc = copy_text(scenario_text(section, key), out->product, sizeof out->product);
    snprintf(key, sizeof key, "grid.%u.info", index);
    return rc == NVML_SUCCESS ? copy_text(scenario_text(section, key), out->info, sizeof out->info) : rc;
}

NVML_API int nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out)
{
    const struct section *section;
    unsigned supported;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u32(section, "grid.supported", &supported) : NVML_ERROR_INVALID_ARGUMENT;
    if (rc != NVML_SUCCESS)
        return end(rc);
    memset(out, 0, sizeof *out);
    out->supported = (int)supported;
    while (rc == NVML_SUCCESS && out->count < 3) {
        rc = license_feature(section, out->count, &out->features[out->count]);
        out->count += rc == NVML_SUCCESS;
    }
    return end(rc == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : rc);
}
