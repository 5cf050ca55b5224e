#include "call.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned initialized;
static char handles[MAX_DEVICES];

device_t handle_of(int index) { return &handles[index]; }

int index_of(device_t handle)
{
    const char *place = handle;
    return place >= handles && place < handles + MAX_DEVICES ? (int)(place - handles) : -1;
}

void start(void) { initialized++; }

int stop(void)
{
    if (!initialized)
        return UNINITIALIZED;
    initialized--;
    return SUCCESS;
}

static void note(const char *function, int index)
{
    const char *path = getenv("FAKE_HLML_LOG");
    if (!path)
        return;
    char line[160];
    int length = index < 0 ? snprintf(line, sizeof line, "%s -\n", function)
                           : snprintf(line, sizeof line, "%s %d\n", function, index);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length)
        fprintf(stderr, "fake hlml: cannot write to %s\n", path);
    if (file >= 0)
        close(file);
}

/* The value of "action.function", else of "action", of the device, else of the system. */
static bool told(const char *action, const char *function, const struct section *device, uint64_t *out)
{
    char key[160];
    snprintf(key, sizeof key, "%s.%s", action, function);
    const struct section *system = scenario_find("system", -1);
    return scenario_number(device, key, out) || scenario_number(device, action, out) ||
           scenario_number(system, key, out) || scenario_number(system, action, out);
}

static int behave(const char *function, const struct section *device)
{
    uint64_t value;
    const char *noise = scenario_text(scenario_find("system", -1), "stdout_noise");
    if (noise && (write(1, noise, strlen(noise)) < 0 || write(1, "\n", 1) < 0))
        return UNKNOWN;
    if (told("delay_ms", function, device, &value)) {
        struct timespec time = {(time_t)(value / 1000), (long)(value % 1000) * 1000000};
        nanosleep(&time, NULL);
    }
    if (told("hang", function, device, &value) && value) {
        /* As a thread in an ioctl that never returns: only SIGKILL ends it. */
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        for (;;)
            pause();
    }
    if (told("crash", function, device, &value) && value) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    return told("rc", function, device, &value) ? (int)value : SUCCESS;
}

int begin_system(const char *function)
{
    note(function, -1);
    if (!scenario_refresh())
        return UNKNOWN;
    if (!initialized && strncmp(function, "hlml_init", 9))
        return UNINITIALIZED;
    return behave(function, NULL);
}

int begin(const char *function, device_t handle, const struct section **section)
{
    int index = index_of(handle);
    note(function, index);
    if (!scenario_refresh())
        return UNKNOWN;
    if (!initialized)
        return UNINITIALIZED;
    *section = index < 0 ? NULL : scenario_find("device", index);
    if (index < 0)
        return INVALID_ARGUMENT;
    return *section ? behave(function, *section) : AIP_IS_LOST;
}

unsigned release(void)
{
    uint64_t number = 24;
    scenario_number(scenario_find("system", -1), "release", &number);
    return (unsigned)number;
}

int answer_u32(const char *function, device_t handle, const char *key, unsigned *out)
{
    uint64_t value;
    int rc = answer_u64(function, handle, key, &value);
    if (rc == SUCCESS && !out)
        return INVALID_ARGUMENT;
    if (rc == SUCCESS)
        *out = (unsigned)value;
    return rc;
}

int answer_u64(const char *function, device_t handle, const char *key, uint64_t *out)
{
    const struct section *section;
    int rc = begin(function, handle, &section);
    if (rc != SUCCESS)
        return rc;
    if (!out)
        return INVALID_ARGUMENT;
    return scenario_number(section, key, out) ? SUCCESS : NOT_SUPPORTED;
}

int copy_text(const char *text, char *out, unsigned size)
{
    if (!out)
        return INVALID_ARGUMENT;
    if (!text)
        return NOT_SUPPORTED;
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    memset(out, 0, size);
    strcpy(out, text);
    return SUCCESS;
}
