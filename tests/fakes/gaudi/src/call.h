/* What every entry point does first: the log, misbehaviour that the scenario asks for, the device. */
#ifndef FAKE_HLML_CALL_H
#define FAKE_HLML_CALL_H

#include "scenario.h"

#define HLML_API __attribute__((visibility("default")))

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, ALREADY_INITIALIZED = 5, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, AIP_IS_LOST = 15, NO_DATA = 21, UNKNOWN = 49,
};

typedef void *device_t;

#define MAX_DEVICES 16
device_t handle_of(int index);
int index_of(device_t handle); /* -1: no handle of ours */

/* Non-zero: the answer of the call. */
int begin_system(const char *function);
int begin(const char *function, device_t handle, const struct section **section);
/* Minor number of the release: 24 for 1.24. */
unsigned release(void);

int answer_u32(const char *function, device_t handle, const char *key, unsigned *out);
int answer_u64(const char *function, device_t handle, const char *key, uint64_t *out);
int copy_text(const char *text, char *out, unsigned size);
void start(void);
int stop(void);

#endif
