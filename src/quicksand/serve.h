/* The server's two processes: `quicksand serve` becomes the warden (root); it starts this same
 * program in the role SERVE_SERVER_ROLE as the unprivileged server. Arguments are those behind the
 * role; each returns an exit status. */
#pragma once

#include <stdbool.h>

#include "domain/account/api_key.h"
#include "quicksand/config.h"

#define SERVE_SERVER_ROLE "serve-unprivileged"
/* In the environment of the server: on which port it serves HTTPS, when it does. */
#define SERVE_TLS_PORT "QUICKSAND_TLS_PORT"

int serve_main(int argc, char **argv);
int serve_down(int argc, char **argv);
int server_main(int argc, char **argv);
/* The exit status of a server that would fail the same way when started again. */
enum { EXIT_CONFIG = 78 };
/* QUICKSAND_API_KEY is set: the operator brings the key. */
bool serve_key_given(void);

/* ---- serve_check.c ---- */

/* paths: in the order of part_names. */
int serve_check_parts(const char *const paths[], struct error *err);
/* Can the server, another user, reach the data directory and read the files of its settings? */
int serve_check_access(const struct config *config, const char *config_file, struct error *err);

/* ---- backup_main.c ---- */

/* `quicksand backup`, `restore` and `upgrade`: the data directory as a whole. */
int keep_main(const char *command, int argc, char **argv);

/* ---- base_layer.c ---- */

/* Makes DATA/layers/base when it is missing, with progress on stdout. */
int base_layer_ensure(const struct config *config, struct error *err);

/* ---- credentials.c ---- */

/* Keeps the key just made in the operator's file, beside those of other servers; or, when none was made
 * ("" in made_key), sees to it that the file has this server's key for its address. False: the file has
 * none. */
struct api_keys;
/* out_key: the key that the file has for this server, made or found; "" = none. */
bool credentials_settle(int fd, const char *url, const char *made_key, struct api_keys *keys,
                        char out_key[API_KEY_GIVEN_MAX + 1]);

/* ---- ready.c ---- */

struct ready {
    const char *url;
    const char *domain; /* for HTTPS, with the port when it is not 443; "" = none */
    const char
        *authority; /* file of the one that signed our own certificate; "" = somebody else did */
    const char *made_key; /* "" when none was made */
    bool key_kept;        /* in the operator's file */
    bool key_given;       /* QUICKSAND_API_KEY: known to the operator */
    const char *link;     /* signs a browser in, once; "" = none */
    const char *provider; /* which is the default, where, and why */
};

/* Prints the line "ready URL" and a block to paste. */
void ready_print(const struct ready *ready);
