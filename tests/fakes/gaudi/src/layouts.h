/* The structs of hlml.h, by release. */
#ifndef FAKE_HLML_LAYOUTS_H
#define FAKE_HLML_LAYOUTS_H

#include <stddef.h>
#include <stdint.h>

#define HAS_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)

typedef struct { char link_speed[10], link_width[10]; } caps_old_t;
typedef struct { char link_speed[10], link_width[10], link_max_speed[10], link_max_width[10]; } caps_t;

typedef struct { unsigned bus; char bus_id[15]; unsigned device, domain, pci_device_id; caps_old_t caps; } pci_info_1_10_t;
HAS_SIZE(pci_info_1_10_t, 52);
typedef struct { unsigned bus; char bus_id[15]; unsigned device, domain, pci_device_id; caps_t caps; unsigned pci_rev; } pci_info_1_14_t;
HAS_SIZE(pci_info_1_14_t, 76);
typedef struct {
    unsigned bus; char bus_id[15]; unsigned device, domain, pci_device_id; caps_t caps; unsigned pci_rev, pci_subsys_id;
} pci_info_1_18_t;
HAS_SIZE(pci_info_1_18_t, 80);
_Static_assert(offsetof(pci_info_1_18_t, caps) == 32 && offsetof(pci_info_1_18_t, pci_subsys_id) == 76, "1.18");
typedef struct {
    unsigned bus; char bus_id[19]; unsigned device, domain, pci_device_id; caps_t caps; unsigned pci_rev, pci_subsys_id;
} pci_info_1_19_t;
HAS_SIZE(pci_info_1_19_t, 84);
_Static_assert(offsetof(pci_info_1_19_t, device) == 24 && offsetof(pci_info_1_19_t, caps) == 36, "1.19");
/* No release that is known: what may come. */
typedef struct { pci_info_1_19_t known; char more[172]; } pci_info_future_t;
HAS_SIZE(pci_info_future_t, 256);

typedef struct { uint64_t free, total, used; } memory_t;
HAS_SIZE(memory_t, 24);
typedef struct { unsigned aip, memory; } utilization_t;
HAS_SIZE(utilization_t, 8);
typedef struct { uint64_t reference, violation; } violation_t;
HAS_SIZE(violation_t, 16);
typedef struct { uint8_t hbm_idx, pc, sid, bank_idx; uint16_t row_addr; } row_address_t;
HAS_SIZE(row_address_t, 6);
typedef struct { void *device; uint64_t type; } event_data_t;
HAS_SIZE(event_data_t, 16);
typedef struct { uint32_t port; char *names; uint64_t *values; uint32_t *count; } nic_stats_t;
HAS_SIZE(nic_stats_t, 32);
_Static_assert(offsetof(nic_stats_t, names) == 8 && offsetof(nic_stats_t, count) == 24, "nic_stats_info");

#endif
