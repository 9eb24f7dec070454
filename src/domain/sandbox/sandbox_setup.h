/* What a sandbox has of the build that it started from: variables, user, working directory, and the commands that
 * run before anybody gets it. It is copied into the row of the sandbox, and from there to its forks and snapshots: a
 * template that is built anew, or deleted, changes none of them. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/ready_ports.h"
#include "base/str.h"
#include "store/platform/store_template.h"

struct sandboxes;
struct box_spec;
struct store_template;

struct setup {
    struct str text;          /* all of it as JSON, as it is kept; "" = nothing */
    struct str env;           /* JSON text of an object; "" = none */
    struct str user, workdir; /* "" = the platform's, the user's home */
    struct str start, ready;  /* commands; "" = none */
    uint16_t ports[READY_PORTS_MAX];
    size_t port_count; /* without a ready command: the ports to wait for; 0 = any port */
};

/* Strings are in the arena. What cannot be read is nothing. */
void setup_read(struct str text, struct arena *arena, struct setup *out);
void setup_of_template(const struct store_template *template, struct arena *arena,
                       struct setup *out);
/* Sets ready and the ports from the ready command of a template. The one that EXPOSE makes becomes a list of ports. The "true"
 * that earlier versions wrote for a Dockerfile with CMD alone counts as no ready command. */
void setup_set_ready(struct setup *setup, struct str ready);
/* "port 80 or port 8000", "a port". */
const char *setup_ports_text(const struct setup *setup, struct arena *arena);
/* The template's variables, and above them those of a request (JSON text). malloc()ed. */
char *setup_env(const struct setup *setup, const char *env);
/* Which boxes are alike, beside their layers: what ran in them. "" when nothing does. */
struct str setup_key(const struct setup *setup);
/* The text for a login shell, whose profile would set PATH anew: with the wanted one before it ("" = none). */
struct str setup_shell_text(struct str path, struct str command, struct arena *arena);
/* Has the new box of this spec to be set up, or does its engine bring the processes that ran when it was sealed? */
bool setup_wanted(const struct setup *setup, const struct box_spec *spec);
/* A box of the warm pool: the ready command finds this variable, and may wait for what nobody who waits for a
 * sandbox would want to wait for. */
#define SETUP_AHEAD "QUICKSAND_AHEAD"

/* What became of the port that a create without a ready command waits for. */
enum setup_port {
    SETUP_PORT_FINE,    /* listened to, or none is waited for */
    SETUP_PORT_SILENT,  /* nothing listened within SETUP_LISTEN_S */
    SETUP_PORT_SKIPPED, /* not waited for: nothing listened in an earlier box of this kind */
};

struct setup_how {
    int64_t disk_mb;
    const atomic_bool *stop; /* gives up when it is set */
    bool ahead;              /* nobody waits for it */
    const struct box_spec *spec;
    enum setup_port *out_port; /* may be NULL */
};

enum {
    SETUP_LISTEN_S = 10, /* for a start command without a ready command */
    SETUP_SILENT_MAX = 256,
    SETUP_SILENT_S = 300, /* a template that listened on nothing is not waited for */
};

/* For who asked for the sandbox; STR_NONE when there is nothing to warn of. */
struct str setup_port_warning(const struct setup *setup, enum setup_port port, struct arena *arena);

/* A script that ends with 0 once a program of the box listens on a TCP port that the setup names, or on any, and with 1
 * after so many seconds. It needs the shell and sleep only. */
struct str setup_listen_text(const struct setup *setup, int64_t seconds, struct arena *arena);

/* Starts what is to run in a box whose envd answers and was told nothing yet, and returns when it is ready: when the ready
 * command succeeds or, without one, when a port is listened to or SETUP_LISTEN_S have passed. Templates that listened to none
 * are remembered (SETUP_SILENT_MAX of them), and not waited for again within SETUP_SILENT_S.
 * ERROR_INVALID when a command failed or was not ready in time: the template is to blame, and neither the engine nor the
 * server. */
int setup_run(struct sandboxes *all, const char *id, const struct setup *setup,
              const struct setup_how *how, struct error *err);
