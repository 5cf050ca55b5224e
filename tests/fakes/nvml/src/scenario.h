/* The scenario file: an INI-like text that says what the machine is like. See ../README.md for the format. */
#ifndef FAKE_NVML_SCENARIO_H
#define FAKE_NVML_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

struct entry {
    char *key, *value;
};

/* "[mig 0.3]" has kind "mig", major 0, minor 3. A number that the header does not give is -1. */
struct section {
    char kind[16];
    int major, minor;
    struct entry *entries;
    unsigned count;
};

/* Reads the file again if it has changed. False: no usable scenario, the reason is on stderr. */
bool scenario_refresh(void);

const struct section *scenario_find(const char *kind, int major, int minor);
/* The n-th section of a kind in file order, NULL after the last. */
const struct section *scenario_nth(const char *kind, unsigned n);
/* Number of GPUs: the [system] key count, else the highest [gpu N] plus one. */
unsigned scenario_gpu_count(void);

const char *scenario_text(const struct section *section, const char *key);
/* Seconds of wall clock since the scenario began: what rates are multiplied by. */
double scenario_elapsed(void);

/* The readers return 0, NOT_SUPPORTED for a key that is not there, UNKNOWN for a value that is no number. */
int scenario_u64(const struct section *section, const char *key, uint64_t *out);
int scenario_i64(const struct section *section, const char *key, int64_t *out);
int scenario_u32(const struct section *section, const char *key, unsigned *out);
int scenario_double(const struct section *section, const char *key, double *out);

/* One number "value" or "value+rate/s", evaluated at that many seconds of the scenario. */
bool number_u64(const char *text, double elapsed, uint64_t *out);
bool number_double(const char *text, double elapsed, double *out);

/* Whether a section of that kind may have the key. */
bool key_is_known(const char *kind, const char *key);

/* Tells what is wrong with the scenario on stderr and returns NVML_ERROR_UNKNOWN. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
