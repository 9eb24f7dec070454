/* Terminals. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "envd/core/users.h"

/* Opens a pair of the given size that belongs to the user. Both are close-on-exec, the master is
 * non-blocking. */
int pty_open(const struct user *user, uint16_t cols, uint16_t rows, int *out_master, int *out_slave,
             struct error *err);
int pty_resize(int master, uint16_t cols, uint16_t rows, struct error *err);
