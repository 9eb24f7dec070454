/* The start command runs in the background from then on; the ready command is tried until it succeeds. Both are
 * programs of the template's user, with the template's variables and in its working directory: what the request
 * that gets the sandbox brings comes later, as with an engine that resumes memory. */
#include "domain/sandbox/sandbox_setup.h"

#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/envd_run.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/json/json_shape.h"

enum {
    BODY_MAX = 512 * 1024,
    STEP_MS = 20,       /* between looks at the other command */
    TRY_MS = 30 * 1000, /* for one ready command */
    PAUSE_MIN_MS = 50,
    PAUSE_MAX_MS = 500,
    SHOWN_MAX = 60, /* of a command in a message */
};

/* ---- what is kept ---- */

static struct str copy(const json_t *object, const char *name, struct arena *arena)
{
    struct str value = json_get_str(object, name);

    return value.len ? arena_str(arena, value) : STR("");
}

void setup_read(struct str text, struct arena *arena, struct setup *out)
{
    auto_json json_t *object = NULL;
    struct error ignored;
    const json_t *env;

    *out = (struct setup){.text = STR(""),
                          .env = STR(""),
                          .user = STR(""),
                          .workdir = STR(""),
                          .start = STR(""),
                          .ready = STR("")};
    if (!text.len || json_parse(text, &object, &ignored) < 0)
        return;
    out->text = arena_str(arena, text);
    env = json_object_get(object, "env");
    if (json_object_size(env)) {
        auto_free char *env_text = json_text(env);

        out->env = arena_str(arena, str_of(env_text));
    }
    out->user = copy(object, "user", arena);
    out->workdir = copy(object, "workdir", arena);
    out->start = copy(object, "start", arena);
    setup_set_ready(out, copy(object, "ready", arena));
}

void setup_set_ready(struct setup *setup, struct str ready)
{
    /* The start commands of Dockerfiles begin with "exec". */
    bool is_none = str_is(ready, "true") && str_starts(setup->start, STR("exec "));

    setup->port_count = ready_ports_read(ready, setup->ports);
    setup->ready = is_none || setup->port_count ? STR("") : ready;
}

const char *setup_ports_text(const struct setup *setup, struct arena *arena)
{
    const char *text = "a port";

    for (size_t i = 0; i < setup->port_count; i++)
        text = i ? arena_printf(arena, "%s or port %u", text, setup->ports[i])
                 : arena_printf(arena, "port %u", setup->ports[i]);
    return text;
}

struct str setup_port_warning(const struct setup *setup, enum setup_port port, struct arena *arena)
{
    const char *ports = setup_ports_text(setup, arena);

    if (port == SETUP_PORT_SILENT)
        return str_of(arena_printf(arena, "nothing listened on %s within %d s of the start command",
                                   ports, SETUP_LISTEN_S));
    if (port == SETUP_PORT_SKIPPED)
        return str_of(arena_printf(arena,
                                   "the create did not wait for the start command: in an earlier "
                                   "sandbox of this template nothing listened on %s within %d s",
                                   ports, SETUP_LISTEN_S));
    return STR_NONE;
}

static void add(json_t *object, const char *name, struct str value)
{
    if (value.len)
        (void)json_object_set_new(object, name, json_str(value));
}

void setup_of_template(const struct store_template *template, struct arena *arena,
                       struct setup *out)
{
    auto_json json_t *object = NULL, *env = NULL;
    auto_free char *text = NULL;
    struct error ignored;

    if (!template->build_id.len) {
        setup_read(template->setup, arena, out);
        return;
    }
    object = json_object();
    if (template->env.len && json_parse(template->env, &env, &ignored) == 0 &&
        json_object_size(env))
        (void)json_object_set(object, "env", env);
    add(object, "user", template->default_user);
    add(object, "workdir", template->workdir);
    add(object, "start", template->start_cmd);
    add(object, "ready", template->ready_cmd);
    text = json_object_size(object) ? json_text(object) : NULL;
    setup_read(text ? str_of(text) : STR(""), arena, out);
}

char *setup_env(const struct setup *setup, const char *env)
{
    auto_json json_t *whole = NULL, *above = NULL;
    struct error ignored;

    if (!setup->env.len || json_parse(setup->env, &whole, &ignored) < 0)
        return xstrdup(env);
    if (json_parse(str_of(env), &above, &ignored) == 0)
        (void)json_object_update(whole, above);
    return json_text(whole);
}

struct str setup_key(const struct setup *setup)
{
    return setup->start.len || setup->ready.len || setup->port_count ? setup->text : STR("");
}

bool setup_wanted(const struct setup *setup, const struct box_spec *spec)
{
    /* Boxes of namespaces begin with envd alone. An engine that resumes memory says no here. */
    return spec->engine == ENGINE_NATIVE && setup_key(setup).len > 0;
}

/* ---- what is run ---- */

struct str setup_shell_text(struct str path, struct str command, struct arena *arena)
{
    auto_buf struct buf text = {0};

    if (!path.len || !command.len)
        return arena_str(arena, command);
    buf_init(&text, command.len + path.len * 4 + 64);
    (void)buf_add_str(&text, STR("export PATH='"));
    for (size_t i = 0; i < path.len; i++)
        (void)(path.p[i] == '\'' ? buf_add_str(&text, STR("'\\''"))
                                 : buf_add_char(&text, path.p[i]));
    (void)buf_printf(&text, "'; %.*s", STR_ARG(command));
    return arena_str(arena, buf_str(&text));
}

/* The template's PATH. */
static struct str path_of(const struct setup *setup, struct arena *arena)
{
    auto_json json_t *env = NULL;
    struct error ignored;

    if (!setup->env.len || json_parse(setup->env, &env, &ignored) < 0)
        return STR("");
    return copy(env, "PATH", arena);
}

struct running {
    struct sandboxes *all;
    const char *id;
    const struct setup *setup;
    const struct setup_how *how;
    int64_t until_ms;
    struct envd_run start;
    struct arena arena;
    struct str path;  /* "" = that of the login shell */
    const char *last; /* how the last ready command ended */
};

static int shown(struct str command)
{
    return (int)(command.len < SHOWN_MAX ? command.len : SHOWN_MAX);
}

static int check_stop(const struct running *running, struct error *err)
{
    if (atomic_load(running->how->stop))
        return error_set(err, ERROR_UNAVAILABLE, "the server ends");
    return 0;
}

/* Reads what the start command writes, so that it does not wait for us. An end is a failure unless it says that
 * all went well: it may have put something into the background. */
static int look_at_start(struct running *running, int64_t ms, struct error *err)
{
    struct envd_run *start = &running->start;
    struct str command = running->setup->start;

    if (!command.len || start->exited)
        (void)poll(NULL, 0, (int)ms);
    else if (envd_run_wait(start, ms, err) < 0)
        return error_prefix(err, "start command '%.*s'", shown(command), command.p);
    if (start->exited && start->exit_code != 0)
        return error_set(err, ERROR_INVALID, "start command '%.*s' failed: %s", shown(command),
                         command.p, envd_run_words(start, &running->arena));
    return 0;
}

/* 1 = ready, 0 = not yet. */
static int try_ready(struct running *running, struct error *err)
{
    static const struct pair ahead = {STR_INIT(SETUP_AHEAD), STR_INIT("1")};
    auto_run struct envd_run run = {0};
    struct str shown_text = running->setup->ready,
               text = setup_shell_text(running->path, shown_text, &running->arena);
    int64_t left = running->until_ms - clock_mono_ms();
    int ended;

    left = left > TRY_MS ? TRY_MS : left > 0 ? left : 1;
    if (envd_run_start(running->all, running->id, text, running->how->ahead ? &ahead : NULL, left,
                       &run, err) < 0)
        return error_prefix(err, "ready command '%.*s'", shown(shown_text), shown_text.p);
    while ((ended = envd_run_wait(&run, STEP_MS, err)) == 0)
        if (look_at_start(running, 0, err) < 0 || check_stop(running, err) < 0)
            return -1;
    if (ended < 0)
        return error_prefix(err, "ready command '%.*s'", shown(shown_text), shown_text.p);
    running->last = envd_run_words(&run, &running->arena);
    return run.exit_code == 0;
}

static int wait_ready(struct running *running, struct error *err)
{
    struct str command = running->setup->ready;
    int64_t pause = PAUSE_MIN_MS;
    int ready;

    while ((ready = try_ready(running, err)) == 0) {
        if (clock_mono_ms() + pause >= running->until_ms)
            return error_set(
                err, ERROR_INVALID, "ready command '%.*s' did not succeed within %lld s: %s",
                shown(command), command.p, (long long)running->all->ready_s, running->last);
        if (look_at_start(running, pause, err) < 0 || check_stop(running, err) < 0)
            return -1;
        pause = pause * 3 / 2 < PAUSE_MAX_MS ? pause * 3 / 2 : PAUSE_MAX_MS;
    }
    return ready < 0 ? -1 : 0;
}

static int start_command(struct running *running, struct error *err)
{
    struct str text = running->setup->start;

    if (!text.len)
        return 0;
    if (envd_run_start(running->all, running->id,
                       setup_shell_text(running->path, text, &running->arena), NULL, 0,
                       &running->start, err) < 0)
        return error_prefix(err, "start command '%.*s'", shown(text), text.p);
    return 0;
}

/* ---- without a ready command ---- */

/* By the kernel's list of sockets: the state 0A is listening, and C33F is envd's port. */
struct str setup_listen_text(const struct setup *setup, int64_t seconds, struct arena *arena)
{
    const char *cases = "C33F) ;; *) exit 0 ;;";

    for (size_t i = 0; i < setup->port_count; i++)
        cases = i ? arena_printf(arena, "%04X|%s", setup->ports[i], cases)
                  : arena_printf(arena, "%04X) exit 0 ;;", setup->ports[i]);
    return str_of(
        arena_printf(arena,
                     "n=0; while :; do for f in /proc/net/tcp /proc/net/tcp6; do [ ! -r $f ] || "
                     "while read -r n_ at to is rest; do [ \"$is\" = 0A ] || continue; "
                     "case ${at##*:} in %s esac; done <$f; done; "
                     "[ $n -lt %lld ] || exit 1; n=$((n + 1)); sleep 0.05 || exit 1; done",
                     cases, (long long)seconds * 20));
}

/* FNV-1a of the layers and the commands. */
static uint64_t setup_hash(const struct box_spec *spec, const struct setup *setup)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < spec->layer_count; i++)
        for (const char *p = spec->layers[i]; *p; p++)
            hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < setup->text.len; i++)
        hash = (hash ^ (unsigned char)setup->text.p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static bool is_silent(struct sandboxes *all, uint64_t hash)
{
    int64_t now = clock_mono_us();
    bool found = false;

    (void)pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->silent_count && i < SETUP_SILENT_MAX; i++)
        found |= all->silent[i].hash == hash && now < all->silent[i].until_us;
    (void)pthread_mutex_unlock(&all->lock);
    return found;
}

static void tell_port(const struct running *running, enum setup_port port)
{
    if (running->how->out_port)
        *running->how->out_port = port;
}

static void set_silent(const struct running *running, uint64_t hash)
{
    struct sandboxes *all = running->all;
    auto_arena struct arena arena = {0};

    log_info("sandbox", "id=%s: nothing listened on %s within %d s", running->id,
             setup_ports_text(running->setup, &arena), SETUP_LISTEN_S);
    tell_port(running, SETUP_PORT_SILENT);
    (void)pthread_mutex_lock(&all->lock);
    all->silent[all->silent_count++ % SETUP_SILENT_MAX] = (struct silent_setup){
        .hash = hash, .until_us = clock_mono_us() + (int64_t)SETUP_SILENT_S * 1000 * 1000};
    (void)pthread_mutex_unlock(&all->lock);
}

/* A start command that fails meanwhile is a failure where ports are declared. Any other only had to be started: who uses the
 * sandbox finds out. */
static int wait_listening(struct running *running, struct error *err)
{
    auto_run struct envd_run run = {0};
    struct str text = setup_listen_text(running->setup, SETUP_LISTEN_S, &running->arena);
    uint64_t hash = setup_hash(running->how->spec, running->setup);
    struct error ignored = {0};
    int ended;

    if (is_silent(running->all, hash)) {
        tell_port(running, SETUP_PORT_SKIPPED);
        return 0;
    }
    if (envd_run_start(running->all, running->id, text, NULL, TRY_MS, &run, err) < 0)
        return error_prefix(err, "look for a port that is listened to");
    while ((ended = envd_run_wait(&run, STEP_MS, err)) == 0) {
        if (check_stop(running, err) < 0)
            return -1;
        if (look_at_start(running, 0, running->setup->port_count ? err : &ignored) < 0)
            return running->setup->port_count ? -1 : 0;
    }
    if (ended < 0)
        return error_prefix(err, "look for a port that is listened to");
    if (run.exit_code != 0)
        set_silent(running, hash);
    return 0;
}

static int wait_settled(struct running *running, struct error *err)
{
    if (running->setup->ready.len)
        return wait_ready(running, err);
    return running->setup->start.len || running->setup->port_count ? wait_listening(running, err)
                                                                   : 0;
}

/* What the commands find. No time stamp: it comes before all others. */
static char *init_text(const struct setup *setup, int64_t disk_mb)
{
    auto_json json_t *body = json_object();
    json_t *env = NULL;
    struct error ignored;

    (void)json_object_set_new(body, "diskMB", json_integer(disk_mb));
    (void)json_object_set_new(body, "defaultUser",
                              json_str(setup->user.len ? setup->user : STR("user")));
    add(body, "defaultWorkdir", setup->workdir);
    if (setup->env.len && json_parse(setup->env, &env, &ignored) == 0)
        (void)json_object_set_new(body, "envVars", env);
    return json_text(body);
}

int setup_run(struct sandboxes *all, const char *id, const struct setup *setup,
              const struct setup_how *how, struct error *err)
{
    struct running running = {.all = all,
                              .id = id,
                              .setup = setup,
                              .how = how,
                              .until_ms = clock_mono_ms() + all->ready_s * 1000};
    auto_free char *body = init_text(setup, how->disk_mb);
    int64_t from = clock_mono_us();
    int result = -1;

    running.path = path_of(setup, &running.arena);
    if (envd_init(all->engine, id, -1, str_of(body), err) == 0 &&
        start_command(&running, err) == 0 && wait_settled(&running, err) == 0)
        result = 0;
    envd_run_done(&running.start);
    arena_done(&running.arena);
    if (result == 0)
        log_info("sandbox", "ready id=%s us=%lld", id, (long long)(clock_mono_us() - from));
    return result;
}
