/* What has a struct for an answer: written in full, in the layout of the release, so that a buffer that is too small is overrun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "layouts.h"

HLML_API int hlml_device_get_pci_info(device_t handle, void *out)
{
    const struct section *section;
    int rc = begin(__func__, handle, &section);
    if (rc != SUCCESS)
        return rc;
    const char *id = scenario_text(section, "bus_id");
    if (!id)
        return NOT_SUPPORTED;
    /* All that a layout does not use is set: nobody may rely on zeros. */
    pci_info_future_t answer;
    memset(&answer, 0xee, sizeof answer);
    unsigned now = release();
    size_t id_size = now >= 19 ? 19 : 15;
    memset(answer.known.bus_id, 0, id_size);
    strncpy(answer.known.bus_id, id, id_size - 1);
    size_t size = now >= 30   ? sizeof(pci_info_future_t)
                  : now >= 19 ? sizeof(pci_info_1_19_t)
                  : now >= 18 ? sizeof(pci_info_1_18_t)
                  : now >= 14 ? sizeof(pci_info_1_14_t)
                              : sizeof(pci_info_1_10_t);
    memcpy(out, &answer, size);
    return SUCCESS;
}

HLML_API int hlml_device_get_utilization_rates(device_t handle, void *out)
{
    const struct section *section;
    int rc = begin(__func__, handle, &section);
    uint64_t aip;
    if (rc != SUCCESS)
        return rc;
    if (!scenario_number(section, "utilization", &aip))
        return NOT_SUPPORTED;
    utilization_t answer = {(unsigned)aip, 77};
    char future[64];
    memset(future, 0xee, sizeof future);
    memcpy(future, &answer, sizeof answer);
    memcpy(out, future, release() >= 30 ? sizeof future : release() >= 19 ? sizeof answer : sizeof answer.aip);
    return SUCCESS;
}

HLML_API int hlml_device_get_memory_info(device_t handle, memory_t *out)
{
    const struct section *section;
    int rc = begin(__func__, handle, &section);
    memory_t answer = {0};
    if (rc != SUCCESS)
        return rc;
    if (!scenario_number(section, "memory.total", &answer.total) || !scenario_number(section, "memory.used", &answer.used))
        return NOT_SUPPORTED;
    scenario_number(section, "memory.free", &answer.free);
    *out = answer;
    return SUCCESS;
}

HLML_API int hlml_device_get_violation_status(device_t handle, int policy, violation_t *out)
{
    char key[40];
    uint64_t value;
    snprintf(key, sizeof key, "violation.%d", policy);
    int rc = answer_u64(__func__, handle, key, &value);
    if (rc == SUCCESS)
        *out = (violation_t){.reference = 1, .violation = value};
    return rc;
}

HLML_API int hlml_device_get_replaced_rows(device_t handle, int cause, unsigned *count, row_address_t *rows)
{
    char key[40];
    snprintf(key, sizeof key, "rows.%d", cause);
    unsigned room = *count, found;
    int rc = answer_u32(__func__, handle, key, &found);
    if (rc != SUCCESS)
        return rc;
    *count = found;
    if (rows && found > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; rows && i < found; i++)
        rows[i] = (row_address_t){.row_addr = (uint16_t)i};
    return SUCCESS;
}

HLML_API int hlml_get_mac_addr_info(device_t handle, uint64_t mask[2], uint64_t external[2])
{
    const struct section *section;
    int rc = begin(__func__, handle, &section);
    if (rc != SUCCESS)
        return rc;
    mask[1] = external[1] = 0;
    if (!scenario_number(section, "ports.mask", &mask[0]) || !scenario_number(section, "ports.external", &external[0]))
        return NOT_SUPPORTED;
    return SUCCESS;
}

HLML_API int hlml_nic_get_link(device_t handle, uint32_t port, bool *up)
{
    char key[40];
    uint64_t value;
    snprintf(key, sizeof key, "port.%u.up", port);
    int rc = answer_u64(__func__, handle, key, &value);
    if (rc == SUCCESS)
        *up = value != 0;
    return rc;
}

static void counter(nic_stats_t *stats, const char *name, uint64_t value)
{
    strcpy(stats->names + 32 * *stats->count, name);
    stats->values[(*stats->count)++] = value;
}

/* Of every "torn"-th reading the upper half of the received bytes is one too high. */
static uint64_t torn(const struct section *section, unsigned port, uint64_t value)
{
    static unsigned readings[MAX_DEVICES][64];
    uint64_t every;
    if (!scenario_number(section, "torn", &every) || !every)
        return value;
    return ++readings[section->number][port % 64] % every ? value : value + ((uint64_t)1 << 32);
}

HLML_API int hlml_nic_get_statistics(device_t handle, nic_stats_t *stats)
{
    const struct section *section;
    int rc = begin(__func__, handle, &section);
    if (rc != SUCCESS)
        return rc;
    char received[40], sent[40];
    uint64_t in, out;
    snprintf(received, sizeof received, "port.%u.rx", stats->port);
    snprintf(sent, sizeof sent, "port.%u.tx", stats->port);
    if (!scenario_number(section, received, &in) || !scenario_number(section, sent, &out))
        return NOT_SUPPORTED;
    *stats->count = 0;
    counter(stats, "rx_Pkts", 5);
    counter(stats, "rx_Octets", torn(section, stats->port, in));
    for (unsigned i = 0; i < 200; i++)
        counter(stats, "some_other_counter_of_the_port", i);
    counter(stats, "tx_Octets", out);
    return SUCCESS;
}
