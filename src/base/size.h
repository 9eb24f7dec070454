/* Sizes as people read them: the one way in which the command line, logs and messages print them. */
#pragma once

#include <stdint.h>

enum { SIZE_TEXT = 24 };

/* "512 B", "1.5 KiB", "512 MiB", "2 GiB": powers of 1024, one digit after the point unless it is 0. Returns out. */
const char *size_text(uint64_t bytes, char out[SIZE_TEXT]);
