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

static void log_call(const char *function, const char *detail)
{
    const char *path = getenv("FAKE_DCGM_LOG");
    char line[4096];
    if (!path)
        return;
    int length = snprintf(line, sizeof line, "%s%s%.3900s\n", function, *detail ? " " : "", detail);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length)
        complain("cannot write to the log %s", path);
    if (file >= 0)
        close(file);
}

static void sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

/* A call that never returns; only SIGKILL ends its thread. */
static void hang(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_mutex_unlock(&lock);
    for (;;)
        pause();
}

static bool told(const char *action, const char *function, long *value)
{
    const struct line *line;
    for (unsigned n = 0; (line = world_line("behave", n)); n++)
        if (!strcmp(line->words[1], action) && !strcmp(line->words[2], function)) {
            *value = word(line, 3);
            return true;
        }
    return false;
}

static int behave(const char *function)
{
    long value;
    if (told("delay_ms", function, &value)) {
        pthread_mutex_unlock(&lock);
        sleep_ms(value);
        pthread_mutex_lock(&lock);
    }
    if (told("hang", function, &value))
        hang();
    if (told("crash", function, &value)) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    return told("rc", function, &value) ? (int)value : OK;
}

int begin(const char *function, const char *detail)
{
    pthread_mutex_lock(&lock);
    log_call(function, detail);
    return world_refresh() ? behave(function) : GENERIC;
}

int begin_request(const char *function, handle_t handle, const char *detail)
{
    int code = begin(function, detail);
    if (code != OK)
        return code;
    return connected(handle) ? OK : NO_CONNECTION;
}

int end(int code)
{
    pthread_mutex_unlock(&lock);
    return code;
}

int generation(const char *key)
{
    const char *text = world_system(key);
    int major = 0, minor = 0;
    if (!text || sscanf(text, "%d.%d", &major, &minor) != 2)
        return 1;
    return major < 4 ? 0 : minor < 6 ? 1 : 2;
}
