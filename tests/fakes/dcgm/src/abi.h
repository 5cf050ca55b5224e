/* Layouts, versions and codes of libdcgm's C interface, written from the facts; the compiler checks every size. */
#ifndef FAKE_DCGM_ABI_H
#define FAKE_DCGM_ABI_H

#include <stddef.h>
#include <stdint.h>

#define DCGM_API __attribute__((visibility("default")))
#define VERSION(type, number) ((unsigned)sizeof(type) | (number) << 24)

enum {
    OK = 0, BAD_PARAMETER = -1, GENERIC = -3, NOT_CONFIGURED = -5, NOT_SUPPORTED = -6, UNINITIALIZED = -10,
    VERSION_MISMATCH = -12, UNKNOWN_FIELD = -13, NO_SAMPLE = -14, NOT_WATCHED = -16, FUNCTION_NOT_FOUND = -20,
    NO_CONNECTION = -21, LIMIT = -24, DUPLICATE = -26, TOO_SMALL = -31, PROFILING_NOT_SUPPORTED = -36, SEVERAL_PASSES = -38,
};

enum { NONE = 0, GPU = 1, VGPU = 2, SWITCH = 3, GPU_I = 4, GPU_CI = 5, LINK = 6, CPU = 7, CPU_CORE = 8 };

typedef uintptr_t handle_t;
#define EMBEDDED ((handle_t)0x7fffffff)

struct pair {
    int group;
    unsigned id;
};

struct connect_v1 {
    unsigned version, persist;
};
struct connect_v2 {
    unsigned version, persist, timeout_ms, is_unix;
};
struct connect_uri {
    unsigned version, persist, timeout_ms;
};
struct embedded_v1 {
    unsigned version;
    int mode;
    handle_t handle;
    const char *log_file;
    int severity;
    unsigned deny_count, deny[10];
};
struct version_info {
    unsigned version;
    char text[512];
};
struct value_v1 {
    unsigned version;
    unsigned short field, type;
    int status, unused;
    int64_t at;
    union {
        int64_t integer;
        double real;
        char text[256];
        char blob[4096];
    } as;
};
struct value_v2 {
    unsigned version;
    int group;
    unsigned id;
    unsigned short field, type;
    int status;
    unsigned unused;
    int64_t at;
    union {
        int64_t integer;
        double real;
        char text[256];
        char blob[4096];
    } as;
};
struct mig_node {
    struct pair entity, parent;
    char uuid[128];
    unsigned index, gi, ci, profile, slices;
};
struct hierarchy {
    unsigned version, count;
    struct mig_node nodes[448];
};
struct attributes {
    unsigned version;
    char clock_sets[3080];
    unsigned thermal[3], power[6];
    struct {
        unsigned version;
        char brand[256], name[256], pci[256], serial[256], uuid[256], vbios[256], inforom[256];
        unsigned pci_device, pci_subsystem;
        char driver[256];
        unsigned virtualization;
    } identifiers;
    unsigned memory[5], settings[4];
};
struct cpus {
    unsigned version, count;
    struct {
        unsigned id;
        struct {
            unsigned version;
            uint64_t mask[16];
        } cores;
    } cpus[8];
};
struct links_v3 {
    unsigned version, gpu_count;
    struct {
        unsigned id, state[18];
    } gpus[32];
    unsigned switch_count;
    struct {
        unsigned id, state[64];
    } switches[12];
};
struct links_v4 {
    unsigned version, gpu_count;
    struct {
        unsigned id, state[18];
    } gpus[32];
    unsigned switch_count;
    struct {
        unsigned id, state[256];
    } switches[12];
};
struct links_v5 {
    unsigned version, gpu_count;
    struct {
        unsigned id, state[36];
    } gpus[32];
    unsigned switch_count;
    struct {
        unsigned id, state[256];
    } switches[12];
};
struct incident {
    unsigned system;
    int health;
    char message[1024];
    unsigned code;
    struct pair entity;
};
#if DCGM_MAJOR == 3
#define MOST_ENTITIES 64
#define HEALTH_NUMBER 4
#else
#define MOST_ENTITIES 1024
#define HEALTH_NUMBER 5
#endif
struct health {
    unsigned version;
    int overall;
    unsigned count;
    struct incident incidents[MOST_ENTITIES];
};
struct metric_groups {
    unsigned version, unused, gpu, count;
    struct {
        unsigned short major, minor;
        unsigned count;
        unsigned short fields[64];
    } groups[10];
};
struct meta {
    unsigned short field;
    char type;
    unsigned char size;
    char tag[48];
    int scope, nvml;
    int level;
    void *format;
};

_Static_assert(sizeof(struct connect_v1) == 8 && sizeof(struct connect_v2) == 16 && sizeof(struct connect_uri) == 12, "connect");
_Static_assert(sizeof(struct embedded_v1) == 72 && offsetof(struct embedded_v1, log_file) == 16, "embedded");
_Static_assert(sizeof(struct version_info) == 516, "version");
_Static_assert(sizeof(struct value_v1) == 4120 && offsetof(struct value_v1, at) == 16 && offsetof(struct value_v1, as) == 24, "value 1");
_Static_assert(sizeof(struct value_v2) == 4128 && offsetof(struct value_v2, at) == 24 && offsetof(struct value_v2, as) == 32, "value 2");
_Static_assert(sizeof(struct hierarchy) == 73480 && sizeof(struct mig_node) == 164, "hierarchy");
_Static_assert(sizeof(struct attributes) == 5220, "attributes");
_Static_assert(offsetof(struct attributes, identifiers.name) == 3120 + 260, "name");
_Static_assert(offsetof(struct attributes, identifiers.driver) == 3120 + 1804, "driver");
_Static_assert(offsetof(struct attributes, memory) == 5184 && offsetof(struct attributes, settings) == 5204, "memory");
_Static_assert(sizeof(struct links_v3) == 5564 && sizeof(struct links_v4) == 14780 && sizeof(struct links_v5) == 17084, "links");
_Static_assert(sizeof(struct health) == (DCGM_MAJOR == 3 ? 66828 : 1069068) && sizeof(struct incident) == 1044, "health");
_Static_assert(sizeof(struct metric_groups) == 1376, "metric groups");
_Static_assert(sizeof(struct cpus) == 1160, "cpus");
_Static_assert(sizeof(struct meta) == 72 && offsetof(struct meta, level) == 60, "meta");

#endif
