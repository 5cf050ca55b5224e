/* The scenario file: a line a fact. See ../README.md for the verbs. */
#ifndef FAKE_DCGM_WORLD_H
#define FAKE_DCGM_WORLD_H

#include <stdbool.h>

#include "abi.h"

#define MOST_WORDS 80

/* "value 1 0 150 i 0 54" has the words value, 1, 0, …; further words are NULL, and what is no number is 0 as one. */
struct line {
    char *words[MOST_WORDS];
    long numbers[MOST_WORDS];
    unsigned count;
};

/* Reads the file again if it has changed. False: no usable scenario, the reason is on stderr. */
bool world_refresh(void);
/* The n-th line that begins with a verb, NULL after the last. */
const struct line *world_line(const char *verb, unsigned n);
/* "system <key> <value>": the value, NULL without. */
const char *world_system(const char *key);
/* A word as a number; complains and gives 0 for what is none. */
long word(const struct line *line, unsigned place);
/* The number of a text at a time (Unix seconds): "54", "1000+250/s" grows from the epoch on. */
double number_at(const char *text, double at);
/* Unix seconds on the engine's clock, now. */
double engine_clock(void);
bool complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
