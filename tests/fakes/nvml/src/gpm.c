/* GPM: ratios and rates of the time between two samples.
 *
 *   gpm.<id>=<number>     the metric's value, in the library's own unit (percent, MiB/s, …); nan is allowed
 *   gpm.<id>=rc:<code>    this metric fails
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

#define SAMPLE_MAGIC 0x47504D31u
#define SHORTEST_INTERVAL_NS 100000000
#define NO_GPU_INSTANCE (-1)

struct gpm_sample {
    unsigned magic;
    bool filled;
    nvmlDevice_t device;
    int gi;
    int64_t monotonic_ns;
    double elapsed;
};

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

NVML_API int nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && out->version != 1)
        rc = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return end(rc == NVML_SUCCESS ? scenario_u32(section, "gpm_supported", &out->supported) : rc);
}

NVML_API int nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
    int rc = begin_system(__func__, NULL);
    if (rc == NVML_SUCCESS && !out)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc != NVML_SUCCESS)
        return end(rc);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return end(NVML_ERROR_MEMORY);
    (*out)->magic = SAMPLE_MAGIC;
    return end(NVML_SUCCESS);
}

NVML_API int nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    int rc = begin_system(__func__, NULL);
    if (rc == NVML_SUCCESS && (!sample || sample->magic != SAMPLE_MAGIC))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS) {
        sample->magic = 0;
        free(sample);
    }
    return end(rc);
}

static int take(const struct section *supporter, nvmlDevice_t device, int gi, nvmlGpmSample_t sample)
{
    unsigned supported = 0;
    if (!sample || sample->magic != SAMPLE_MAGIC)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (scenario_u32(supporter, "gpm_supported", &supported) != NVML_SUCCESS || !supported)
        return NVML_ERROR_NOT_SUPPORTED;
    sample->filled = true;
    sample->device = device;
    sample->gi = gi;
    sample->monotonic_ns = monotonic_ns();
    sample->elapsed = scenario_elapsed();
    return NVML_SUCCESS;
}

/* Takes a GPU's handle or a MIG device's. */
NVML_API int nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    const struct section *section;
    int rc = begin(__func__, device, NULL, &section);
    if (rc != NVML_SUCCESS)
        return end(rc);
    const struct section *parent = parent_of(section);
    return end(take(parent ? parent : section, device, NO_GPU_INSTANCE, sample));
}

/* The MIG device inside a GPU instance; NULL when the instance has no compute instance. */
static const struct section *mig_in(int gpu, int gi)
{
    const struct section *mig;
    for (unsigned n = 0; (mig = scenario_nth("mig", n)); n++) {
        unsigned own;
        if (mig->major == gpu && scenario_u32(mig, "gi", &own) == NVML_SUCCESS && (int)own == gi)
            return mig;
    }
    return NULL;
}

NVML_API int nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample)
{
    const struct section *section;
    char detail[16];
    snprintf(detail, sizeof detail, "%u", gi);
    int rc = begin(__func__, device, detail, &section);
    if (rc == NVML_SUCCESS && (is_mig(section) || gi > INT32_MAX))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && !mig_in(section->major, (int)gi) && !scenario_find("gi", section->major, (int)gi))
        rc = NVML_ERROR_INVALID_ARGUMENT;
    return end(rc == NVML_SUCCESS ? take(section, device, (int)gi, sample) : rc);
}

/* Where the metrics of a sample stand; NULL: a GPU instance that has no compute instance, so no data. */
static const struct section *source_of(const struct section *device, int gi)
{
    if (gi == NO_GPU_INSTANCE)
        return device;
    const struct section *mig = mig_in(device->major, gi), *own = scenario_find("gi", device->major, gi);
    return mig && own ? own : mig;
}

static void no_data(nvmlGpmMetric_t *metric)
{
    metric->rc = NVML_ERROR_NO_DATA;
    metric->value = NAN;
}

/* An unsupported metric has a plausible 0 beside its return code: who does not look at the code reads it. */
static int fill_metric(const struct section *source, double elapsed, nvmlGpmMetric_t *metric)
{
    char key[24];
    snprintf(key, sizeof key, "gpm.%u", metric->id);
    const char *text = scenario_text(source, key);
    metric->value = 0;
    metric->rc = NVML_ERROR_NOT_SUPPORTED;
    if (!text)
        return NVML_SUCCESS;
    if (!strncmp(text, "rc:", 3)) {
        metric->rc = atoi(text + 3);
        return NVML_SUCCESS;
    }
    metric->rc = NVML_SUCCESS;
    return number_double(text, elapsed, &metric->value) ? NVML_SUCCESS : complain("%s is no number: %s", key, text);
}

static bool is_pair(const struct gpm_sample *first, const struct gpm_sample *second)
{
    return first && second && first->magic == SAMPLE_MAGIC && second->magic == SAMPLE_MAGIC && first->filled &&
           second->filled && first->device == second->device && first->gi == second->gi;
}

static void list_metrics(const nvmlGpmMetricsGet_t *get, char *out, size_t size)
{
    size_t length = 0;
    out[0] = 0;
    for (unsigned i = 0; i < get->count && length + 16 < size; i++)
        length += (size_t)snprintf(out + length, size - length, i ? ",%u" : "%u", get->metrics[i].id);
}

static int fill_metrics(const struct section *device, nvmlGpmMetricsGet_t *get)
{
    const struct section *source = source_of(device, get->sample2->gi);
    bool too_close = get->sample2->monotonic_ns - get->sample1->monotonic_ns < SHORTEST_INTERVAL_NS;
    int rc = NVML_SUCCESS;
    for (unsigned i = 0; rc == NVML_SUCCESS && i < get->count; i++) {
        if (too_close || !source)
            no_data(&get->metrics[i]);
        else
            rc = fill_metric(source, get->sample2->elapsed, &get->metrics[i]);
    }
    return rc;
}

NVML_API int nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    char detail[3800];
    if (!get || get->version != 1 || !is_pair(get->sample1, get->sample2)) {
        int rc = begin_system(__func__, NULL);
        if (rc != NVML_SUCCESS)
            return end(rc);
        return end(get && get->version != 1 ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT);
    }
    const struct section *section;
    list_metrics(get, detail, sizeof detail);
    int rc = begin(__func__, get->sample2->device, detail, &section);
    return end(rc == NVML_SUCCESS ? fill_metrics(section, get) : rc);
}
