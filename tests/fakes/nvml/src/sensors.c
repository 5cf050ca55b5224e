/* Temperature, power, clocks, utilization, PCIe, fans. */
#include <stdio.h>

#include "call.h"

ANSWER_U32(nvmlDeviceGetPowerUsage, "power_mw")
ANSWER_U32(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
ANSWER_U32(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
ANSWER_U32(nvmlDeviceGetEnforcedPowerLimit, "power_limit_enforced_mw")
ANSWER_U32(nvmlDeviceGetPerformanceState, "pstate")
ANSWER_U32(nvmlDeviceGetPcieReplayCounter, "pcie.replay")
ANSWER_U32(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.gen")
ANSWER_U32(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_gen")
ANSWER_U32(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
ANSWER_U32(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width")
ANSWER_U32(nvmlDeviceGetNumFans, "fan_count")
ANSWER_U32(nvmlDeviceGetFanSpeed, "fan_speed")

NVML_API int nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *out)
{
    char key[40];
    snprintf(key, sizeof key, "fan_speed.%u", fan);
    return answer_u32(__func__, device, key, out);
}

NVML_API int nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *min, unsigned *max)
{
    return answer_two(__func__, device, "power_limit_min_mw", min, "power_limit_max_mw", max);
}

NVML_API int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, uint64_t *out)
{
    return answer_u64(__func__, device, "energy_mj", out);
}

NVML_API int nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *out)
{
    return answer_u32(__func__, device, sensor == 0 ? "temperature" : "", out);
}

NVML_API int nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!out || out->sensor != 0))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && out->version != VERSION_WORD(nvmlTemperature_t, 1))
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return end(rc == NVML_SUCCESS ? scenario_u32(section, "temperature", (unsigned *)&out->temperature) : rc);
}

NVML_API int nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int threshold, unsigned *out)
{
    static const char *const keys[] = {
        "temperature_threshold.shutdown", "temperature_threshold.slowdown", "temperature_threshold.mem_max",
        "temperature_threshold.gpu_max", "temperature_threshold.acoustic_min", "temperature_threshold.acoustic_curr",
        "temperature_threshold.acoustic_max", "temperature_threshold.gps_curr",
    };
    return answer_u32(__func__, device, threshold >= 0 && threshold < 8 ? keys[threshold] : "", out);
}

NVML_API int nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && out->version != VERSION_WORD(nvmlMarginTemperature_t, 1))
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return end(rc == NVML_SUCCESS ? scenario_u32(section, "temperature_margin", (unsigned *)&out->margin) : rc);
}

static int clock_of(const char *function, nvmlDevice_t device, const char *set, int type, unsigned *out)
{
    static const char *const domains[] = {"graphics", "sm", "mem", "video"};
    char key[40];
    snprintf(key, sizeof key, "clock.%s%s", set, type >= 0 && type < 4 ? domains[type] : "?");
    return answer_u32(function, device, key, out);
}

NVML_API int nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *out)
{
    return clock_of(__func__, device, "", type, out);
}

NVML_API int nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *out)
{
    return clock_of(__func__, device, "max.", type, out);
}

NVML_API int nvmlDeviceGetApplicationsClock(nvmlDevice_t device, int type, unsigned *out)
{
    return clock_of(__func__, device, "app.", type, out);
}

NVML_API int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    return answer_two(__func__, device, "util.gpu", out ? &out->gpu : NULL, "util.memory", out ? &out->memory : NULL);
}

#define ANSWER_ENGINE(function, key)                                               \
    NVML_API int function(nvmlDevice_t device, unsigned *percent, unsigned *period) \
    {                                                                              \
        return answer_two(#function, device, key, percent, "util.period_us", period); \
    }

ANSWER_ENGINE(nvmlDeviceGetEncoderUtilization, "util.encoder")
ANSWER_ENGINE(nvmlDeviceGetDecoderUtilization, "util.decoder")
ANSWER_ENGINE(nvmlDeviceGetJpgUtilization, "util.jpeg")
ANSWER_ENGINE(nvmlDeviceGetOfaUtilization, "util.ofa")

NVML_API int nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned *out)
{
    static const char *const keys[] = {"pcie.tx_kb", "pcie.rx_kb"};
    return answer_u32(__func__, device, counter == 0 || counter == 1 ? keys[counter] : "", out);
}

NVML_API int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, uint64_t *out)
{
    return answer_u64(__func__, device, "throttle_mask", out);
}

NVML_API int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, uint64_t *out)
{
    return answer_u64(__func__, device, "throttle_mask", out);
}
