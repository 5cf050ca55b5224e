/* A libamd_smi.so without a mind of its own: each function looks up in a file what it has to write where, and what to return.
 *
 * The file is the one that FAKE_AMDSMI_SCENARIO names, read again when it has changed. A line is
 *
 *     function key,key,... result action action ...
 *
 * with one key for each of the first arguments (a number, or * for any). The first line whose function and keys fit counts; where
 * none does, the result is 2, not supported. Actions:
 *
 *     N@offset=hex     write these bytes at the offset into what argument N points to, unless it is null
 *     N@offset:text    write there a pointer to the text
 *     sleep=seconds    do not return before; 0 for never
 *     crash            end the process by a signal
 *     say=text         print the text on standard output
 */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_SUPPORTED 2
#define ARGUMENTS 8

static char *text;
static struct stat known;

static void load(void)
{
    const char *path = getenv("FAKE_AMDSMI_SCENARIO");
    struct stat now;
    if (path == NULL || stat(path, &now) != 0)
        return;
    if (text != NULL && now.st_ino == known.st_ino && now.st_mtim.tv_nsec == known.st_mtim.tv_nsec)
        return;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return;
    char *found = malloc((size_t)now.st_size + 1);
    size_t length = fread(found, 1, (size_t)now.st_size, file);
    fclose(file);
    found[length] = '\0';
    free(text);
    text = found;
    known = now;
}

static void note(const char *function, const uint64_t *arguments)
{
    const char *path = getenv("FAKE_AMDSMI_LOG");
    FILE *file = path != NULL ? fopen(path, "ab") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%s %llu\n", function, (unsigned long long)arguments[0]);
    fclose(file);
}

static int fits(const char *keys, const uint64_t *arguments)
{
    for (int number = 0; number < ARGUMENTS && *keys != ' '; number++) {
        char *end;
        uint64_t key = strtoull(keys, &end, 10);
        if (*keys == '*')
            end = (char *)keys + 1;
        else if (key != arguments[number])
            return 0;
        keys = *end == ',' ? end + 1 : end;
    }
    return 1;
}

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void write_bytes(char *target, const char *hex)
{
    for (; *hex != ' ' && *hex != '\n' && *hex != '\0'; hex += 2)
        *target++ = (char)(digit(hex[0]) << 4 | digit(hex[1]));
}

static char *copy(const char *word)
{
    return strndup(word, strcspn(word, " \n"));
}

static void act(const char *word, const uint64_t *arguments)
{
    if (strncmp(word, "sleep=", 6) == 0) {
        double seconds = strtod(word + 6, NULL);
        if (seconds == 0)
            for (;;)
                pause();
        usleep((useconds_t)(seconds * 1e6));
    } else if (strncmp(word, "crash", 5) == 0) {
        raise(SIGSEGV);
    } else if (strncmp(word, "say=", 4) == 0) {
        char *said = copy(word + 4);
        puts(said);
        fflush(stdout);
        free(said);
    } else {
        char *end;
        unsigned long number = strtoul(word, &end, 10);
        char *target = (char *)(uintptr_t)arguments[number];
        if (target == NULL)
            return;
        target += strtoul(end + 1, &end, 10);
        if (*end == '=') {
            write_bytes(target, end + 1);
        } else {
            char *kept = copy(end + 1);
            memcpy(target, &kept, sizeof kept);
        }
    }
}

uint64_t play(const char *function, const uint64_t *arguments)
{
    load();
    note(function, arguments);
    size_t length = strlen(function);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *next = strchr(line, '\n');
        if (strncmp(line, function, length) == 0 && line[length] == ' ' && fits(line + length + 1, arguments)) {
            const char *word = strchr(line + length + 1, ' ') + 1;
            uint64_t result = strtoull(word, NULL, 10);
            while ((word = strpbrk(word, " \n")) != NULL && *word == ' ')
                act(++word, arguments);
            return result;
        }
        line = next != NULL ? next + 1 : NULL;
    }
    return NOT_SUPPORTED;
}
