/* The entry points that return what one key of the scenario says are all alike: they are these functions. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

int answer_u32(const char *function, nvmlDevice_t device, const char *key, unsigned *out)
{
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u32(section, key, out) : NVML_ERROR_INVALID_ARGUMENT;
    return end(rc);
}

int answer_u64(const char *function, nvmlDevice_t device, const char *key, uint64_t *out)
{
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    if (rc == NVML_SUCCESS)
        rc = out ? scenario_u64(section, key, out) : NVML_ERROR_INVALID_ARGUMENT;
    return end(rc);
}

int answer_text(const char *function, nvmlDevice_t device, const char *key, char *out, unsigned size)
{
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    return end(rc == NVML_SUCCESS ? copy_text(scenario_text(section, key), out, size) : rc);
}

int answer_two(const char *function, nvmlDevice_t device, const char *first_key, unsigned *first,
               const char *second_key, unsigned *second)
{
    const struct section *section;
    int rc = begin(function, device, NULL, &section);
    if (rc == NVML_SUCCESS && (!first || !second))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, first_key, first);
    if (rc == NVML_SUCCESS)
        rc = scenario_u32(section, second_key, second);
    return end(rc);
}

int copy_text(const char *text, char *out, unsigned size)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

int copy_hex(const struct section *section, const char *key, unsigned char *out, unsigned size)
{
    const char *text = scenario_text(section, key);
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, size);
    for (unsigned i = 0; i < size && *text; text++) {
        if (*text == '-')
            continue;
        if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
            return complain("%s: not pairs of hexadecimal digits: %s", key, text);
        const char pair[3] = {text[0], text[1], 0};
        out[i++] = (unsigned char)strtoul(pair, NULL, 16);
        text++;
    }
    return NVML_SUCCESS;
}
