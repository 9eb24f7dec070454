/* The pages under /ui: a list of what runs, and a terminal. They are part of the program. */
#pragma once

#include <stdbool.h>

struct http_exchange;

/* False: the path is not ours. */
bool ui_handle(struct http_exchange *ex);
