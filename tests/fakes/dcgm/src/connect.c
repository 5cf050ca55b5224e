/* Connections: to what really listens on a socket or a port, or to an engine in this process. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "call.h"

#define HANDLE ((handle_t)0x1)
#define DEAD ((handle_t)0x2)

static int wire = -1;
static bool initialized, embedded;

bool connected(handle_t handle)
{
    char byte;
    if (handle == EMBEDDED)
        return embedded;
    if (handle != HANDLE || wire < 0)
        return false;
    ssize_t got = recv(wire, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got != 0)
        return true;
    close(wire);
    wire = -1;
    forget_groups();
    return false;
}

DCGM_API int dcgmInit(void)
{
    int code = begin(__func__, "");
    initialized = initialized || code == OK;
    return end(code);
}

DCGM_API int dcgmShutdown(void)
{
    int code = begin(__func__, "");
    initialized = false;
    return end(code);
}

static int open_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && connect(made, (struct sockaddr *)&address, sizeof address)) {
        close(made);
        return -1;
    }
    return made;
}

static int open_tcp(const char *text)
{
    char host[256], port[8] = "5555";
    if (sscanf(text, "[%255[^]]]:%7s", host, port) < 1 && sscanf(text, "%255[^:]:%7s", host, port) < 1)
        return -1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found))
        return -1;
    int made = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && connect(made, found->ai_addr, found->ai_addrlen)) {
        close(made);
        made = -1;
    }
    freeaddrinfo(found);
    return made;
}

/* A refused login comes back as success, with a handle that is good for nothing. */
static int log_in(int made, handle_t *out)
{
    if (made < 0)
        return NO_CONNECTION;
    if (world_system("login_refused")) {
        close(made);
        *out = DEAD;
        return OK;
    }
    if (wire >= 0)
        close(wire);
    wire = made;
    *out = HANDLE;
    return OK;
}

DCGM_API int dcgmConnect_v2(const char *address, void *parameters, handle_t *out)
{
    int code = begin(__func__, address);
    const struct connect_v2 *given = parameters;
    if (code == OK && !initialized)
        code = UNINITIALIZED;
    if (code == OK && given->version != VERSION(struct connect_v2, 2) && given->version != VERSION(struct connect_v1, 1))
        code = VERSION_MISMATCH;
    if (code == OK) {
        bool is_unix = given->version == VERSION(struct connect_v2, 2) && given->is_unix;
        code = log_in(is_unix ? open_unix(address) : open_tcp(address), out);
    }
    return end(code);
}

#if DCGM_MAJOR >= 4
DCGM_API int dcgmConnect_v3(const char *uri, struct connect_uri *parameters, handle_t *out)
{
    int code = begin(__func__, uri);
    if (code == OK && parameters->version != VERSION(struct connect_uri, 1))
        code = VERSION_MISMATCH;
    if (code == OK && !strncmp(uri, "tcp://", 6))
        code = log_in(open_tcp(uri + 6), out);
    else if (code == OK && !strncmp(uri, "unix://", 7))
        code = log_in(open_unix(uri + 7), out);
    else if (code == OK)
        code = NO_CONNECTION;
    return end(code);
}
#endif

DCGM_API int dcgmDisconnect(handle_t handle)
{
    begin(__func__, "");
    if (handle == HANDLE && wire >= 0) {
        close(wire);
        wire = -1;
        forget_groups();
    }
    return end(OK);
}

DCGM_API int dcgmStartEmbedded_v2(struct embedded_v1 *parameters)
{
    int code = begin(__func__, parameters->log_file ? parameters->log_file : "-");
    if (code == OK && parameters->version != VERSION(struct embedded_v1, 1))
        code = VERSION_MISMATCH;
    if (code == OK && !initialized)
        code = UNINITIALIZED;
    if (code == OK && !embedded) {
        embedded = true;
        parameters->handle = EMBEDDED;
    }
    return end(code);
}

DCGM_API int dcgmStartEmbedded(int mode, handle_t *out)
{
    (void)mode;
    int code = begin(__func__, "");
    if (code == OK) {
        *out = embedded ? 0 : EMBEDDED;
        embedded = true;
    }
    return end(code);
}

DCGM_API int dcgmStopEmbedded(handle_t handle)
{
    begin(__func__, "");
    if (handle == EMBEDDED) {
        embedded = false;
        forget_groups();
    }
    return end(OK);
}

static int tell_version(const char *key, struct version_info *out)
{
    const char *text = world_system(key);
    if (out->version != VERSION(struct version_info, 2))
        return VERSION_MISMATCH;
    if (text)
        snprintf(out->text, sizeof out->text, "version:%s;arch:x86_64;buildtype:Release;", text);
    else
        strcpy(out->text, "arch:x86_64;");
    return OK;
}

DCGM_API int dcgmVersionInfo(struct version_info *out)
{
    int code = begin(__func__, "");
    return end(code == OK ? tell_version(DCGM_MAJOR == 3 ? "library3" : "library4", out) : code);
}

DCGM_API int dcgmHostengineVersionInfo(handle_t handle, struct version_info *out)
{
    int code = begin_request(__func__, handle, "");
    return end(code == OK ? tell_version("engine", out) : code);
}
