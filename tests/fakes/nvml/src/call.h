/* What every entry point does first and last: lock, refresh the scenario, log, misbehave as told, find the device. */
#ifndef FAKE_NVML_CALL_H
#define FAKE_NVML_CALL_H

#include "abi.h"
#include "scenario.h"

/* Pairs with end(), whatever it returns. Non-zero: the answer of the call. The detail, or NULL, goes to the log. */
int begin_system(const char *function, const char *detail);
/* The same for a call on a device. */
int begin(const char *function, nvmlDevice_t device, const char *detail, const struct section **section);
/* Unlocks and hands the code through. */
int end(int rc);
/* For a wait: lets other threads in between two looks at the scenario. False: the library was shut down meanwhile. */
bool wait_ms(unsigned ms);

/* The whole body of an entry point that returns what one key says. */
int answer_u32(const char *function, nvmlDevice_t device, const char *key, unsigned *out);
int answer_u64(const char *function, nvmlDevice_t device, const char *key, uint64_t *out);
int answer_text(const char *function, nvmlDevice_t device, const char *key, char *out, unsigned size);
int answer_two(const char *function, nvmlDevice_t device, const char *first_key, unsigned *first,
               const char *second_key, unsigned *second);
int copy_text(const char *text, char *out, unsigned size);
/* Hexadecimal digits, dashes ignored, into exactly size bytes; fewer digits leave zeros. */
int copy_hex(const struct section *section, const char *key, unsigned char *out, unsigned size);

/* What the scenario tells a call on these sections to do: a return code, a hang, a crash, a delay. */
int behave(const char *function, const struct section *device, const struct section *parent);

/* Handles. slot is -1 for a whole GPU. */
nvmlDevice_t handle_of(const struct section *section);
int handle_resolve(nvmlDevice_t device, const struct section **section);
/* The GPU that a MIG section is part of; NULL for a whole GPU. */
const struct section *parent_of(const struct section *section);
bool is_mig(const struct section *section);

#define ANSWER_U32(function, key) \
    NVML_API int function(nvmlDevice_t device, unsigned *out) { return answer_u32(#function, device, key, out); }

#endif
