/* The part of NVML's C ABI that the fake implements: return codes, opaque handles and the layout of every struct, each
 * with its size checked at compile time. 64-bit Linux only, as the real library in data centres. */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Everything marked so is exported; the linker's version script hides the rest. */
#define NVML_API __attribute__((visibility("default")))

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_UNKNOWN = 999
};

#define NO_INSTANCE 0xFFFFFFFFu
#define ALL_LINKS 0xFFFFFFFFu
#define MAX_LINKS 36u

typedef struct handle *nvmlDevice_t;
typedef struct gpu_instance *nvmlGpuInstance_t;
typedef struct event_set *nvmlEventSet_t;
typedef struct gpm_sample *nvmlGpmSample_t;

/* A struct's version word carries its size in the low 24 bits. */
#define VERSION_WORD(type, n) ((unsigned)sizeof(type) | ((unsigned)(n) << 24))
#define HAS_SIZE(type, n) _Static_assert(sizeof(type) == (n), #type " must have " #n " bytes")

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;
HAS_SIZE(nvmlPciInfo_t, 68);

typedef struct { uint64_t total, free, used; } nvmlMemory_t;
HAS_SIZE(nvmlMemory_t, 24);

typedef struct { unsigned version; uint64_t total, reserved, free, used; } nvmlMemory_v2_t;
HAS_SIZE(nvmlMemory_v2_t, 40);

typedef struct { uint64_t total, free, used; } nvmlBAR1Memory_t;
HAS_SIZE(nvmlBAR1Memory_t, 24);

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
HAS_SIZE(nvmlUtilization_t, 8);

typedef struct { unsigned version; int sensor, temperature; } nvmlTemperature_t;
HAS_SIZE(nvmlTemperature_t, 12);

typedef struct { unsigned version; int margin; } nvmlMarginTemperature_t;
HAS_SIZE(nvmlMarginTemperature_t, 8);

typedef union {
    double d;
    int si;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    unsigned short us;
} nvmlValue_t;

typedef struct {
    unsigned field_id, scope_id;
    int64_t timestamp_us, latency_us;
    int value_type, rc;
    nvmlValue_t value;
} nvmlFieldValue_t;
HAS_SIZE(nvmlFieldValue_t, 40);

typedef struct { unsigned max, high, partial, low, none; } nvmlRowRemapperHistogram_t;
HAS_SIZE(nvmlRowRemapperHistogram_t, 20);

typedef struct {
    unsigned version;
    uint64_t aggregate_unc_parity, aggregate_unc_secded, aggregate_cor;
    uint64_t volatile_unc_parity, volatile_unc_secded, volatile_cor;
    uint64_t bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
} nvmlEccSramErrorStatus_t;
HAS_SIZE(nvmlEccSramErrorStatus_t, 104);
_Static_assert(offsetof(nvmlEccSramErrorStatus_t, threshold_exceeded) == 96, "threshold flag at 96");

/* The state is one byte in the library, four in the Python binding: the fake writes the byte only. */
typedef struct {
    unsigned version;
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique_id;
    unsigned char state;
    unsigned health_mask;
    unsigned char health_summary; /* from version 3 on */
} nvmlGpuFabricInfoV_t;
HAS_SIZE(nvmlGpuFabricInfoV_t, 40);
_Static_assert(offsetof(nvmlGpuFabricInfoV_t, health_summary) == 36, "version 2 ends at 36");
#define FABRIC_V2 0x02000024u
#define FABRIC_V3 0x03000028u

typedef struct {
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique_id;
    unsigned char state;
} nvmlGpuFabricInfo_t;
HAS_SIZE(nvmlGpuFabricInfo_t, 28);

typedef struct { unsigned pid; uint64_t used; } nvmlProcessInfo_v1_t;
HAS_SIZE(nvmlProcessInfo_v1_t, 16);

typedef struct { unsigned pid; uint64_t used; unsigned gi, ci; } nvmlProcessInfo_t;
HAS_SIZE(nvmlProcessInfo_t, 24);

/* Also what early R535 drivers wrote under the symbols of nvmlProcessInfo_t. */
typedef struct { unsigned pid; uint64_t used; unsigned gi, ci; uint64_t protected_used; } nvmlProcessDetail_t;
HAS_SIZE(nvmlProcessDetail_t, 32);

typedef struct { unsigned version, mode, count; nvmlProcessDetail_t *records; } nvmlProcessDetailList_t;
HAS_SIZE(nvmlProcessDetailList_t, 24);

typedef struct { unsigned pid; uint64_t timestamp_us; unsigned sm, mem, enc, dec; } nvmlProcessUtilization_t;
HAS_SIZE(nvmlProcessUtilization_t, 32);

typedef struct { uint64_t protected_kib, unprotected_kib; } nvmlConfComputeMemSizeInfo_t;
HAS_SIZE(nvmlConfComputeMemSizeInfo_t, 16);

typedef struct {
    unsigned sm, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    uint64_t memory_mb;
} nvmlDeviceAttributes_t;
HAS_SIZE(nvmlDeviceAttributes_t, 40);

typedef struct { nvmlDevice_t device; unsigned id, profile_id, placement_start, placement_size; } nvmlGpuInstanceInfo_t;
HAS_SIZE(nvmlGpuInstanceInfo_t, 24);

typedef struct { nvmlDevice_t device; uint64_t type, data; unsigned gi, ci; } nvmlEventData_t;
HAS_SIZE(nvmlEventData_t, 32);

typedef struct { unsigned version, supported; } nvmlGpmSupport_t;
HAS_SIZE(nvmlGpmSupport_t, 8);

typedef struct { unsigned id; int rc; double value; const char *short_name, *long_name, *unit; } nvmlGpmMetric_t;
HAS_SIZE(nvmlGpmMetric_t, 40);

/* The array's length depends on the caller's header: only count entries exist for us. */
typedef struct { unsigned version, count; nvmlGpmSample_t sample1, sample2; nvmlGpmMetric_t metrics[]; } nvmlGpmMetricsGet_t;
HAS_SIZE(nvmlGpmMetricsGet_t, 24);

typedef struct {
    uint32_t year;
    uint16_t month, day, hour, min, sec;
    uint8_t status;
} nvmlGridLicenseExpiry_t;
HAS_SIZE(nvmlGridLicenseExpiry_t, 16);

typedef struct {
    int code;
    unsigned state;
    char info[128], product[128];
    unsigned enabled;
    nvmlGridLicenseExpiry_t expiry;
} nvmlGridLicensableFeature_t;
HAS_SIZE(nvmlGridLicensableFeature_t, 284);

typedef struct { int supported; unsigned count; nvmlGridLicensableFeature_t features[3]; } nvmlGridLicensableFeatures_t;
HAS_SIZE(nvmlGridLicensableFeatures_t, 860);

/* Versions 1 and 2 differ in the meaning of the second text: the rack's GUID, the chassis' serial number. */
typedef struct {
    unsigned version;
    unsigned char ib_guid[16], rack_or_chassis[16];
    unsigned char slot, tray, host, peer_type, module_id;
} nvmlPlatformInfo_t;
HAS_SIZE(nvmlPlatformInfo_t, 44);
#define PLATFORM_V1 0x0100002Cu
#define PLATFORM_V2 0x0200002Cu

#endif
