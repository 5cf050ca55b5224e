/* The scenario file: [section] and key=value lines that say what the machine is like. See ../README.md. */
#ifndef FAKE_HLML_SCENARIO_H
#define FAKE_HLML_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

struct entry {
    char *key, *value;
};

/* "[device 3]" has kind "device" and number 3; "[system]" has number -1. */
struct section {
    char kind[16];
    int number;
    struct entry *entries;
    unsigned count;
};

/* Reads the file again if it has changed. False: there is none that can be used, the reason is on stderr. */
bool scenario_refresh(void);
const struct section *scenario_find(const char *kind, int number);
/* The n-th section of a kind, NULL after the last. */
const struct section *scenario_nth(const char *kind, unsigned n);
const char *scenario_text(const struct section *section, const char *key);
/* A number "12", "0xff" or "12+3/s", which grows from the scenario's epoch on. False: there is no such key. */
bool scenario_number(const struct section *section, const char *key, uint64_t *out);

#endif
