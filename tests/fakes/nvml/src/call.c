#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialized;

static void sleep_ms(unsigned ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

static void log_call(const char *function, const struct section *section, bool whole_library, const char *detail)
{
    const char *path = getenv("FAKE_NVML_LOG");
    if (!path)
        return;
    char device[24] = "?", line[4096];
    if (whole_library)
        strcpy(device, "-");
    else if (section && section->minor >= 0)
        snprintf(device, sizeof device, "%d.%d", section->major, section->minor);
    else if (section)
        snprintf(device, sizeof device, "%d", section->major);
    int length = snprintf(line, sizeof line, "%s %s%s%.3900s\n", function, device, detail ? " " : "", detail ? detail : "");
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length)
        complain("cannot write to the log %s", path);
    if (file >= 0)
        close(file);
}

static void make_noise(void)
{
    const char *noise = scenario_text(scenario_find("system", -1, -1), "stdout_noise");
    if (noise && (write(1, noise, strlen(noise)) < 0 || write(1, "\n", 1) < 0))
        complain("cannot write the noise to stdout");
}

/* A thread in an ioctl that never returns: only SIGKILL ends it, as in state D. */
static void hang(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_mutex_unlock(&lock);
    for (;;)
        pause();
}

static void crash(void)
{
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

/* The value of "action.function", else of "action", in the first of the three sections that has one. */
static bool told(const char *action, const char *function, const struct section *const sections[3], unsigned *value)
{
    char key[160];
    snprintf(key, sizeof key, "%s.%s", action, function);
    for (unsigned i = 0; i < 3; i++)
        if (scenario_u32(sections[i], key, value) == NVML_SUCCESS || scenario_u32(sections[i], action, value) == NVML_SUCCESS)
            return true;
    return false;
}

int behave(const char *function, const struct section *device, const struct section *parent)
{
    const struct section *const sections[3] = {device, parent, scenario_find("system", -1, -1)};
    unsigned value;
    if (told("hang", function, sections, &value) && value)
        hang();
    if (told("crash", function, sections, &value) && value)
        crash();
    return told("rc", function, sections, &value) ? (int)value : NVML_SUCCESS;
}

/* Runs before the sections are used, since it lets go of the lock and the scenario may change. */
static bool delay(const char *function, const struct section *device, const struct section *parent)
{
    const struct section *const sections[3] = {device, parent, scenario_find("system", -1, -1)};
    unsigned ms;
    return !told("delay_ms", function, sections, &ms) || wait_ms(ms);
}

bool wait_ms(unsigned ms)
{
    pthread_mutex_unlock(&lock);
    sleep_ms(ms);
    pthread_mutex_lock(&lock);
    return initialized && scenario_refresh();
}

static int enter(const char *function)
{
    pthread_mutex_lock(&lock);
    if (!initialized) {
        log_call(function, NULL, true, "uninitialized");
        return NVML_ERROR_UNINITIALIZED;
    }
    return scenario_refresh() ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

int begin_system(const char *function, const char *detail)
{
    int rc = enter(function);
    if (rc != NVML_SUCCESS)
        return rc;
    log_call(function, NULL, true, detail);
    make_noise();
    return delay(function, NULL, NULL) ? behave(function, NULL, NULL) : NVML_ERROR_UNKNOWN;
}

int begin(const char *function, nvmlDevice_t device, const char *detail, const struct section **section)
{
    int rc = enter(function);
    if (rc != NVML_SUCCESS)
        return rc;
    rc = handle_resolve(device, section);
    log_call(function, *section, false, detail);
    make_noise();
    if (rc != NVML_SUCCESS)
        return rc;
    if (!delay(function, *section, parent_of(*section)))
        return NVML_ERROR_UNKNOWN;
    rc = handle_resolve(device, section);
    return rc != NVML_SUCCESS ? rc : behave(function, *section, parent_of(*section));
}

int end(int rc)
{
    pthread_mutex_unlock(&lock);
    return rc;
}

NVML_API int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    if (!scenario_refresh())
        return end(NVML_ERROR_UNKNOWN);
    log_call(__func__, NULL, true, NULL);
    make_noise();
    initialized++; /* so that the delay counts as inside the library */
    int rc = delay(__func__, NULL, NULL) ? behave(__func__, NULL, NULL) : NVML_ERROR_UNKNOWN;
    initialized -= rc != NVML_SUCCESS;
    return end(rc);
}

NVML_API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

NVML_API int nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    log_call(__func__, NULL, true, NULL);
    if (!initialized)
        return end(NVML_ERROR_UNINITIALIZED);
    initialized--;
    return end(NVML_SUCCESS);
}
