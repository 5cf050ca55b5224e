/* The library, the devices, and what has one number for an answer. */
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "layouts.h"

HLML_API int hlml_init(void)
{
    int rc = begin_system(__func__);
    if (rc == SUCCESS || rc == ALREADY_INITIALIZED)
        start();
    return rc;
}

HLML_API int hlml_init_with_flags(unsigned flags)
{
    (void)flags;
    return hlml_init();
}

HLML_API int hlml_shutdown(void)
{
    int rc = begin_system(__func__);
    return rc == SUCCESS ? stop() : rc;
}

HLML_API int hlml_device_get_count(unsigned *out)
{
    int rc = begin_system(__func__);
    if (rc != SUCCESS)
        return rc;
    const struct section *device;
    *out = 0;
    for (unsigned n = 0; (device = scenario_nth("device", n)); n++)
        if ((unsigned)device->number + 1 > *out)
            *out = (unsigned)device->number + 1;
    return SUCCESS;
}

HLML_API int hlml_device_get_handle_by_index(unsigned index, device_t *out)
{
    int rc = begin_system(__func__);
    if (rc != SUCCESS)
        return rc;
    const struct section *device = index < MAX_DEVICES ? scenario_find("device", (int)index) : NULL;
    if (!device)
        return INVALID_ARGUMENT;
    uint64_t refused;
    if (scenario_number(device, "rc.hlml_device_get_handle_by_index", &refused))
        return (int)refused;
    *out = handle_of((int)index);
    return SUCCESS;
}

static int text(const char *function, device_t handle, const char *key, char *out, unsigned size)
{
    const struct section *section;
    int rc = begin(function, handle, &section);
    return rc == SUCCESS ? copy_text(scenario_text(section, key), out, size) : rc;
}

static int system_text(const char *function, const char *key, char *out, unsigned size)
{
    int rc = begin_system(function);
    return rc == SUCCESS ? copy_text(scenario_text(scenario_find("system", -1), key), out, size) : rc;
}

#define TEXT(function, key) \
    HLML_API int function(device_t handle, char *out, unsigned size) { return text(#function, handle, key, out, size); }
TEXT(hlml_device_get_name, "name")
TEXT(hlml_device_get_serial, "serial")
TEXT(hlml_device_get_uuid, "uuid")
TEXT(hlml_device_get_oper_status, "oper_status")

HLML_API int hlml_get_driver_version(char *out, unsigned size)
{
    return system_text(__func__, "driver_version", out, size);
}

#define NUMBER(function, key) \
    HLML_API int function(device_t handle, unsigned *out) { return answer_u32(#function, handle, key, out); }
NUMBER(hlml_device_get_minor_number, "minor")
NUMBER(hlml_device_get_module_id, "module_id")
NUMBER(hlml_device_get_power_usage, "power_mw")
NUMBER(hlml_device_get_power_management_default_limit, "power_default_limit_mw")
NUMBER(hlml_device_get_power_management_limit, "power_limit_mw")
NUMBER(hlml_device_get_pcie_replay_counter, "pcie.replay")
NUMBER(hlml_device_get_curr_pcie_link_width, "pcie.width")
NUMBER(hlml_device_get_replaced_rows_pending_status, "rows.pending")

static int numbered(const char *function, device_t handle, const char *what, int which, unsigned *out)
{
    char key[40];
    snprintf(key, sizeof key, "%s.%d", what, which);
    return answer_u32(function, handle, key, out);
}

#define NUMBERED(function, what) \
    HLML_API int function(device_t handle, int which, unsigned *out) { return numbered(#function, handle, what, which, out); }
NUMBERED(hlml_device_get_clock_info, "clock")
NUMBERED(hlml_device_get_max_clock_info, "max_clock")
NUMBERED(hlml_device_get_temperature, "temperature")
NUMBERED(hlml_device_get_temperature_threshold, "threshold")
NUMBERED(hlml_device_get_pcie_throughput, "pcie.throughput")

HLML_API int hlml_device_get_current_clocks_throttle_reasons(device_t handle, uint64_t *out)
{
    return answer_u64(__func__, handle, "throttle", out);
}

HLML_API int hlml_device_get_total_energy_consumption(device_t handle, uint64_t *out)
{
    return answer_u64(__func__, handle, "energy_mj", out);
}

static int two(const char *function, device_t handle, const char *first, unsigned *a, const char *second, unsigned *b)
{
    const struct section *section;
    uint64_t one, other;
    int rc = begin(function, handle, &section);
    if (rc != SUCCESS)
        return rc;
    if (!scenario_number(section, first, &one) || !scenario_number(section, second, &other))
        return NOT_SUPPORTED;
    *a = (unsigned)one;
    *b = (unsigned)other;
    return SUCCESS;
}

HLML_API int hlml_device_get_ecc_mode(device_t handle, unsigned *current, unsigned *pending)
{
    return two(__func__, handle, "ecc.current", current, "ecc.pending", pending);
}

HLML_API int hlml_device_get_power_management_limit_constraints(device_t handle, unsigned *min, unsigned *max)
{
    return two(__func__, handle, "power_limit_min_mw", min, "power_limit_max_mw", max);
}

HLML_API int hlml_device_get_total_ecc_errors(device_t handle, int error, int counter, uint64_t *out)
{
    char key[40];
    snprintf(key, sizeof key, "ecc.%d.%d.total", error, counter);
    return answer_u64(__func__, handle, key, out);
}

HLML_API int hlml_device_get_memory_error_counter(device_t handle, int error, int counter, int location, uint64_t *out)
{
    char key[40];
    snprintf(key, sizeof key, "ecc.%d.%d.%d", error, counter, location);
    return answer_u64(__func__, handle, key, out);
}
