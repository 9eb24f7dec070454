/* What an extra is: a part of the product that the core does without, in a folder of its own, which may use all of the
 * core and which nothing of the core names. It registers itself by one struct; the core goes through those that were
 * chosen by meson's option `extras`. */
#pragma once

#include <stdbool.h>

struct cli_place;
struct http_exchange;

/* Members that are NULL are what an extra does not have. */
struct extra {
    const char *name;
    const struct cli_place *commands; /* of the command line (cli/core/cli_command.h) */
    /* On a loop, first of all: takes a request over plain HTTP of a server that has HTTPS, too. True: it is answered. */
    bool (*handle_plain)(struct http_exchange *ex, const char *data_dir);
};

/* Those of this build, NULL-terminated; made by tools/extras.py. */
extern const struct extra *const extras[];

/* Adds their commands and types of providers; at the start of the program. */
void extras_register(void);
