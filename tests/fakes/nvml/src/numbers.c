/* Numbers of the scenario: "54", "0x1F", "-3", "12.5", "nan", each with an optional rate: "1000+250/s". */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "scenario.h"

/* The rate after the number that ends at text; 0 when there is none. */
static bool rate_of(const char *text, double *rate)
{
    *rate = 0;
    if (!*text)
        return true;
    if (*text != '+' && *text != '-')
        return false;
    char *end;
    *rate = strtod(text, &end);
    return end != text && !strcmp(end, "/s");
}

bool number_u64(const char *text, double elapsed, uint64_t *out)
{
    char *end;
    double rate;
    bool negative = *text == '-';
    errno = 0;
    uint64_t magnitude = strtoull(text + negative, &end, 0);
    if (!isdigit((unsigned char)text[negative]) || errno || !rate_of(end, &rate))
        return false;
    *out = (negative ? -magnitude : magnitude) + (uint64_t)(int64_t)(rate * elapsed);
    return true;
}

bool number_double(const char *text, double elapsed, double *out)
{
    char *end;
    double rate, value = strtod(text, &end);
    if (end == text || !rate_of(end, &rate))
        return false;
    *out = value + rate * elapsed;
    return true;
}

static int not_a_number(const struct section *section, const char *key, const char *text)
{
    return complain("[%s %d.%d] %s: not a number of the right size: %s", section->kind, section->major, section->minor, key, text);
}

int scenario_u64(const struct section *section, const char *key, uint64_t *out)
{
    const char *text = scenario_text(section, key);
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    return number_u64(text, scenario_elapsed(), out) ? NVML_SUCCESS : not_a_number(section, key, text);
}

int scenario_i64(const struct section *section, const char *key, int64_t *out)
{
    uint64_t value;
    int rc = scenario_u64(section, key, &value);
    if (rc == NVML_SUCCESS)
        *out = (int64_t)value;
    return rc;
}

int scenario_u32(const struct section *section, const char *key, unsigned *out)
{
    int64_t value;
    int rc = scenario_i64(section, key, &value);
    if (rc != NVML_SUCCESS)
        return rc;
    if (value < INT32_MIN || value > (int64_t)UINT32_MAX)
        return not_a_number(section, key, scenario_text(section, key));
    *out = (unsigned)value;
    return NVML_SUCCESS;
}

int scenario_double(const struct section *section, const char *key, double *out)
{
    const char *text = scenario_text(section, key);
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    return number_double(text, scenario_elapsed(), out) ? NVML_SUCCESS : not_a_number(section, key, text);
}
