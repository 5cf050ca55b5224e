/* Every key that a scenario may use, by section. A key that is not here is a spelling mistake, not an absent quantity. */
#include <ctype.h>
#include <string.h>

#include "scenario.h"

struct keys {
    const char *kind;
    const char *const *patterns;
};

/* In a pattern # stands for digits and * for the rest of the key. */
static const char *const behaviour[] = {
    "rc", "rc.*", "hang", "hang.*", "crash", "crash.*", "delay_ms", "delay_ms.*", NULL,
};

static const char *const system_keys[] = {
    "driver_version", "nvml_version", "cuda", "count", "epoch", "stdout_noise", "process_record_bytes", NULL,
};

static const char *const gpu_keys[] = {
    "name", "uuid", "serial", "minor", "brand", "architecture", "vbios", "board_part_number", "gsp_version",
    "inforom.image", "inforom.oem", "inforom.ecc", "inforom.power", "pci", "pci_device_id", "pci_subsystem_id",
    "module_id", "cores", "cuda_cc", "memory_bus_width", "numa_node", "memory_affinity", "persistence_mode",
    "compute_mode", "virtualization_mode",
    "temperature", "temperature_margin", "temperature_threshold.*",
    "power_mw", "power_limit_mw", "power_limit_default_mw", "power_limit_enforced_mw", "power_limit_min_mw",
    "power_limit_max_mw", "energy_mj",
    "clock.*", "pstate", "throttle_mask", "fan_count", "fan_speed", "fan_speed.#",
    "util.gpu", "util.memory", "util.encoder", "util.decoder", "util.jpeg", "util.ofa", "util.period_us",
    "memory.total", "memory.reserved", "memory.free", "memory.used", "bar1.total", "bar1.free", "bar1.used",
    "pcie.gen", "pcie.max_gen", "pcie.width", "pcie.max_width", "pcie.replay", "pcie.tx_kb", "pcie.rx_kb",
    "ecc.mode", "ecc.pending", "ecc.corrected.*", "ecc.uncorrected.*",
    "retired_pages.#", "retired_pending", "remap.corrected", "remap.uncorrected", "remap.pending", "remap.failure",
    "remap.histogram", "sram.*", "unrepairable", "unrepairable_bytes",
    "field.#", "field.#.#", "field.#.all", "gpm_supported", "gpm.#",
    "nvlink.#.state", "nvlink.#.version", "nvlink.#.remote_type", "nvlink.#.error.#", "p2p.#", "p2p.#.#",
    "fabric.uuid", "fabric.status", "fabric.clique", "fabric.state", "fabric.health_mask", "fabric.health_summary",
    "fabric.max_version", "platform.*", "grid.supported", "grid.#.*",
    "mig_mode", "mig_pending", "mig_max", "event_types", "processes", "conf.protected_kib", "conf.unprotected_kib", NULL,
};

static const char *const mig_keys[] = {
    "gi", "ci", "profile_id", "placement_start", "placement_size", "attr.*", NULL,
};

static const char *const gi_keys[] = {"profile_id", "placement_start", "placement_size", "gpm.#", NULL};

static const char *const process_keys[] = {
    "pid", "kind", "memory", "protected_memory", "gi", "ci", "name", "sm", "mem", "enc", "dec", "timestamp_us", NULL,
};

static const char *const event_keys[] = {"gpu", "type", "data", "gi", "ci", "at", "after_ms", NULL};

/* A MIG device may answer whatever a GPU may. */
static const struct keys known[] = {
    {"system", behaviour}, {"system", system_keys}, {"gpu", behaviour}, {"gpu", gpu_keys}, {"mig", behaviour},
    {"mig", gpu_keys}, {"mig", mig_keys}, {"gi", gi_keys}, {"process", process_keys}, {"event", event_keys},
};

static bool matches(const char *pattern, const char *key)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*')
            return *key != 0;
        if (*pattern == '#') {
            if (!isdigit((unsigned char)*key))
                return false;
            while (isdigit((unsigned char)*key))
                key++;
        } else if (*pattern != *key++) {
            return false;
        }
    }
    return *key == 0;
}

bool key_is_known(const char *kind, const char *key)
{
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        for (unsigned j = 0; !strcmp(known[i].kind, kind) && known[i].patterns[j]; j++)
            if (matches(known[i].patterns[j], key))
                return true;
    return false;
}
