/* The dashboard: pages at / and what they are made of under /ui. They are part of the program; their sources are in web/. */
#pragma once

#include <stdbool.h>

struct http_exchange;

/* False: the path is not ours. */
bool ui_handle(struct http_exchange *ex);
