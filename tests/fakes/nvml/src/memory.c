/* Memory sizes and memory health: ECC, retired pages, remapped rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

/* "used" of the first version includes what the driver reserves. */
NVML_API int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u64(section, "memory.total", &out->total) : NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "memory.free", &out->free);
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "memory.used", &out->used);
    uint64_t reserved = 0;
    if (rc == NVML_SUCCESS && scenario_u64(section, "memory.reserved", &reserved) == NVML_SUCCESS)
        out->used += reserved;
    return end(rc);
}

NVML_API int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && out->version != VERSION_WORD(nvmlMemory_v2_t, 2))
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "memory.total", &out->total);
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "memory.reserved", &out->reserved);
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "memory.free", &out->free);
    return end(rc == NVML_SUCCESS ? scenario_u64(section, "memory.used", &out->used) : rc);
}

NVML_API int nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u64(section, "bar1.total", &out->total) : NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        rc = scenario_u64(section, "bar1.free", &out->free);
    return end(rc == NVML_SUCCESS ? scenario_u64(section, "bar1.used", &out->used) : rc);
}

NVML_API int nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    return answer_two(__func__, device, "ecc.mode", current, "ecc.pending", pending);
}

static int ecc_counter(const char *function, nvmlDevice_t device, int type, int counter, const char *place, uint64_t *out)
{
    char key[60];
    snprintf(key, sizeof key, "ecc.%s.%s.%s", type == 0 ? "corrected" : type == 1 ? "uncorrected" : "?",
             counter == 0 ? "volatile" : counter == 1 ? "aggregate" : "?", place);
    return answer_u64(function, device, key, out);
}

NVML_API int nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, uint64_t *out)
{
    return ecc_counter(__func__, device, type, counter, "total", out);
}

NVML_API int nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int type, int counter, int location, uint64_t *out)
{
    static const char *const places[] = {"l1", "l2", "dram", "register", "texture", "shm", "cbu", "sram"};
    return ecc_counter(__func__, device, type, counter, location >= 0 && location < 8 ? places[location] : "?", out);
}

/* "0x1000,0x2000": counts the addresses, writing as many as there is room for. */
static unsigned list_pages(const char *text, uint64_t *out, unsigned room)
{
    unsigned count = 0;
    while (*text) {
        char *end_of_number;
        uint64_t address = strtoull(text, &end_of_number, 0);
        if (end_of_number == text)
            break;
        if (count < room)
            out[count] = address;
        count++;
        text = end_of_number + (*end_of_number == ',');
    }
    return count;
}

NVML_API int nvmlDeviceGetRetiredPages(nvmlDevice_t device, int cause, unsigned *count, uint64_t *addresses)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!count || cause < 0 || cause > 1))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc != NVML_SUCCESS)
        return end(rc);
    const char *pages = scenario_text(section, cause == 0 ? "retired_pages.0" : "retired_pages.1");
    if (!pages)
        return end(NVML_ERROR_NOT_SUPPORTED);
    unsigned room = addresses ? *count : 0;
    *count = list_pages(pages, addresses, room);
    return end(*count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

ANSWER_U32(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")

NVML_API int nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                       unsigned *failure)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!corrected || !uncorrected || !pending || !failure))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "remap.corrected", corrected);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "remap.uncorrected", uncorrected);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "remap.pending", pending);
    return end(rc == NVML_SUCCESS ? scenario_u32(section, "remap.failure", failure) : rc);
}

NVML_API int nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogram_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc != NVML_SUCCESS)
        return end(rc);
    const char *text = scenario_text(section, "remap.histogram");
    if (!out)
        return end(NVML_ERROR_INVALID_ARGUMENT);
    if (!text)
        return end(NVML_ERROR_NOT_SUPPORTED);
    int fields = sscanf(text, "%u,%u,%u,%u,%u", &out->max, &out->high, &out->partial, &out->low, &out->none);
    return end(fields == 5 ? NVML_SUCCESS : complain("remap.histogram needs five numbers, not %s", text));
}

static int fill_sram(const struct section *section, nvmlEccSramErrorStatus_t *out)
{
    const struct {
        const char *key;
        uint64_t *target;
    } counters[] = {
        {"sram.aggregate_unc_parity", &out->aggregate_unc_parity},
        {"sram.aggregate_unc_secded", &out->aggregate_unc_secded},
        {"sram.aggregate_cor", &out->aggregate_cor},
        {"sram.volatile_unc_parity", &out->volatile_unc_parity},
        {"sram.volatile_unc_secded", &out->volatile_unc_secded},
        {"sram.volatile_cor", &out->volatile_cor},
        {"sram.bucket_l2", &out->bucket_l2},
        {"sram.bucket_sm", &out->bucket_sm},
        {"sram.bucket_pcie", &out->bucket_pcie},
        {"sram.bucket_mcu", &out->bucket_mcu},
        {"sram.bucket_other", &out->bucket_other},
    };
    int rc = scenario_u32(section, "sram.threshold_exceeded", &out->threshold_exceeded);
    for (unsigned i = 0; rc == NVML_SUCCESS && i < sizeof counters / sizeof *counters; i++)
        rc = scenario_u64(section, counters[i].key, counters[i].target);
    return rc;
}

NVML_API int nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && out->version != VERSION_WORD(nvmlEccSramErrorStatus_t, 1))
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return end(rc == NVML_SUCCESS ? fill_sram(section, out) : rc);
}

/* Two layouts go by this name: {version, flag}, which checks its version, and {flag}. unrepairable_bytes chooses. */
NVML_API int nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, unsigned *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    unsigned bytes = 8, flag;
    if (rc == NVML_SUCCESS)
        scenario_u32(section, "unrepairable_bytes", &bytes);
    if (rc == NVML_SUCCESS && bytes == 8 && out[0] != (8u | (1u << 24)))
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, "unrepairable", &flag);
    if (rc == NVML_SUCCESS)
        out[bytes == 8 ? 1 : 0] = flag;
    return end(rc);
}
