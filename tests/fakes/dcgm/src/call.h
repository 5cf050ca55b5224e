/* What every entry point does first and last: lock, refresh the scenario, log, misbehave as told, find the connection. */
#ifndef FAKE_DCGM_CALL_H
#define FAKE_DCGM_CALL_H

#include "world.h"

/* Pairs with end(), whatever it returns. Non-zero: the answer of the call. The detail, or "", goes to the log. */
int begin(const char *function, const char *detail);
/* The same for a request over a connection. */
int begin_request(const char *function, handle_t handle, const char *detail);
/* Unlocks and hands the code through. */
int end(int code);

/* Whether a handle is a connection that still stands. */
bool connected(handle_t handle);
/* Which generation of requests a version speaks: 0 for 3.x, 1 from 4.0 on, 2 from 4.6 on. */
int generation(const char *key);
/* Forgets groups and watches: the engine does with those of a lost connection. */
void forget_groups(void);

#endif
