/* nvmlDeviceGetFieldValues: many numbers in one call, each with its own return code and type.
 *
 *   field.<id>=<type>:<number>            scope 0
 *   field.<id>.<scope>=…                  another scope; "all" is 0xFFFFFFFF
 *   field.<id>=rc:<code>                  this field fails
 *   …;as=<type>  the type that is reported, where a driver reports a wrong one
 *   …;ts=<µs>    the timestamp, where it is not now
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

/* In the order of the library's value types. */
static const char *const type_names[] = {"d", "ui", "ul", "ull", "sll", "si", "us"};

static int type_of(const char *name)
{
    for (int i = 0; i < 7; i++)
        if (!strcmp(type_names[i], name))
            return i;
    return -1;
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static const char *text_of(const struct section *section, const nvmlFieldValue_t *field)
{
    char key[48];
    if (field->scope_id == ALL_LINKS)
        snprintf(key, sizeof key, "field.%u.all", field->field_id);
    else
        snprintf(key, sizeof key, "field.%u.%u", field->field_id, field->scope_id);
    const char *text = scenario_text(section, key);
    if (text || field->scope_id)
        return text;
    snprintf(key, sizeof key, "field.%u", field->field_id);
    return scenario_text(section, key);
}

static bool store(int type, const char *number, nvmlValue_t *out)
{
    uint64_t bits = 0;
    if (type == 0)
        return number_double(number, scenario_elapsed(), &out->d);
    if (!number_u64(number, scenario_elapsed(), &bits))
        return false;
    switch (type) {
    case 1: out->ui = (unsigned)bits; break;
    case 2: out->ul = bits; break;
    case 3: out->ull = bits; break;
    case 4: out->sll = (int64_t)bits; break;
    case 5: out->si = (int)(int64_t)bits; break;
    default: out->us = (unsigned short)bits; break;
    }
    return true;
}

/* The part after the first ';': options that make the answer odd. */
static bool apply_options(char *options, nvmlFieldValue_t *field)
{
    char *rest;
    for (char *option = strtok_r(options, ";", &rest); option; option = strtok_r(NULL, ";", &rest)) {
        uint64_t timestamp;
        if (!strncmp(option, "as=", 3) && type_of(option + 3) >= 0)
            field->value_type = type_of(option + 3);
        else if (!strncmp(option, "ts=", 3) && number_u64(option + 3, 0, &timestamp))
            field->timestamp_us = (int64_t)timestamp;
        else
            return false;
    }
    return true;
}

static bool parse_field(char *text, nvmlFieldValue_t *field)
{
    char *options = strchr(text, ';');
    if (options)
        *options++ = 0;
    char *number = strchr(text, ':');
    if (!number)
        return false;
    *number++ = 0;
    if (!strcmp(text, "rc")) {
        field->rc = atoi(number);
        return field->rc != 0;
    }
    field->value_type = type_of(text);
    field->timestamp_us = now_us();
    field->rc = NVML_SUCCESS;
    return field->value_type >= 0 && store(field->value_type, number, &field->value) &&
           (!options || apply_options(options, field));
}

/* A field that fails leaves the caller's value alone. */
static bool fill_field(const struct section *section, nvmlFieldValue_t *field)
{
    const char *text = text_of(section, field);
    field->latency_us = 0;
    field->rc = NVML_ERROR_NOT_SUPPORTED;
    if (!text)
        return true;
    char copy[128];
    snprintf(copy, sizeof copy, "%s", text);
    if (parse_field(copy, field))
        return true;
    complain("field.%u: not <type>:<number> or rc:<code>: %s", field->field_id, text);
    return false;
}

static void list_fields(const nvmlFieldValue_t *fields, int count, char *out, size_t size)
{
    size_t length = 0;
    out[0] = 0;
    for (int i = 0; i < count && length + 32 < size; i++)
        length += (size_t)snprintf(out + length, size - length, fields[i].scope_id ? "%s%u.%u" : "%s%u", i ? "," : "",
                                   fields[i].field_id, fields[i].scope_id);
}

NVML_API int nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields)
{
    const struct section *section;
    char detail[3800];
    list_fields(fields, fields ? count : 0, detail, sizeof detail);
    int rc = begin(__func__, device, *detail ? detail : NULL, &section);
    if (rc == NVML_SUCCESS && (!fields || count <= 0))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; rc == NVML_SUCCESS && i < count; i++)
        if (!fill_field(section, &fields[i]))
            rc = NVML_ERROR_UNKNOWN;
    return end(rc);
}
