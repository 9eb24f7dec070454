/* Sockets for code that may block: they are non-blocking, and every wait has a limit. A deadline is a
 * moment of clock_mono_ms(), 0 = none. Failures to connect are ERROR_UNAVAILABLE, a deadline that
 * passes is ERROR_TIMEOUT. */
#pragma once

#include <stdint.h>

#include "base/error.h"

int http_dial_unix(const char *path, int64_t deadline_ms, struct error *err);
/* host: a name or an address; port: its digits. */
int http_dial_host(const char *host, const char *port, int64_t deadline_ms, struct error *err);
/* events: of poll(2) */
int http_dial_wait(int fd, short events, int64_t deadline_ms, struct error *err);
/* For a TCP connection that stays on this host. Where the host's default is bbr, it would be paced for a network
 * that is not in between: half the rate for twice the processor time. */
void http_dial_unpaced(int fd);
