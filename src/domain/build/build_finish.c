/* The end of a build: the target's files become a tree that sandboxes share, the start command is tried until the
 * template is ready, and one transaction makes the build what its tags name. */
#include <poll.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_setup.h"
#include "domain/sandbox/sandbox_warm.h"
#include "protocol/envd/envd_client.h"
#include "protocol/json/json_shape.h"

enum { READY_MS = 10 * 60 * 1000, FIRST_PAUSE_MS = 50, LAST_PAUSE_MS = 1000, PORT_PAUSE_MS = 250 };
#define STEP STR("finalize")

/* ---- the path ---- */

#define USUAL_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Login shells, which the SDKs run commands with, set PATH anew in /etc/profile of some distributions. What the
 * template says about it comes after that. */
static int write_path(struct stage *stage, struct str path, struct error *err)
{
    static const char script[] = "mkdir -p /etc/profile.d && cat >/etc/profile.d/template-path.sh";
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1};
    auto_buf struct buf text = {0};
    int64_t bytes;

    buf_init(&text, path.len * 4 + 64);
    (void)buf_add_str(&text, STR("export PATH='"));
    for (size_t i = 0; i < path.len; i++)
        (void)(path.p[i] == '\'' ? buf_add_str(&text, STR("'\\''"))
                                 : buf_add_char(&text, path.p[i]));
    (void)buf_add_str(&text, STR("'\n"));
    command.input = buf_str(&text);
    if (stage_box(stage, err) < 0 ||
        build_box_must(&stage->box, &command, "keep the path", err) < 0)
        return -1;
    return stage_seal(stage, &bytes, err);
}

static int keep_path(struct stage *stage, struct error *err)
{
    struct str path = stage_env(stage, STR("PATH"));
    struct key_maker *maker;
    char key[KEY_SIZE];
    int r;

    if (!path.len || str_is(path, USUAL_PATH))
        return 0;
    maker = key_new("path");
    key_add(maker, stage->layers);
    key_add(maker, path);
    key_take(maker, key);
    r = stage_take_cached(stage, key, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    r = write_path(stage, path, err);
    build_box_close(&stage->box);
    return r < 0 ? -1 : cache_put(stage->build, key, stage->layers, STR_NONE, 0, err);
}

/* ---- trying it ---- */

struct trial {
    struct stage *stage;
    struct build_box box;
    struct envd_process *start; /* NULL = none, or it has ended well */
    struct log_stream out, err;
};

static struct build_command shell_command(struct stage *stage, const char **argv, struct str text)
{
    argv[0] = "/bin/bash";
    argv[1] = "-l";
    argv[2] = "-c";
    argv[3] = setup_shell_text(stage_env(stage, STR("PATH")), text, &stage->arena).p;
    argv[4] = NULL;
    return (struct build_command){.argv = argv,
                                  .user = stage->user.p,
                                  .cwd = stage->workdir.len ? stage->workdir.p : NULL,
                                  .env = stage->env,
                                  .env_count = stage->env_count,
                                  .spool_fd = -1};
}

/* What the start command wrote meanwhile. -1 when it failed. */
static int drain(struct trial *trial, uint32_t timeout_ms, struct error *err)
{
    struct envd_event event;
    int r;

    while (trial->start) {
        r = envd_process_next(trial->start, timeout_ms, &event, err);
        if (r <= 0)
            return r;
        if (event.kind == ENVD_EXITED) {
            envd_process_free(take_ptr(&trial->start));
            return event.exit_code
                       ? error_set(err, ERROR_INVALID, "start command failed: exit status %d",
                                   event.exit_code)
                       : 0;
        }
        if (event.kind != ENVD_STARTED)
            log_stream_add(event.kind == ENVD_STDOUT ? &trial->out : &trial->err, event.data);
        timeout_ms = 0;
    }
    return 0;
}

/* Waits, and listens to the start command meanwhile. */
static int pass_time(struct trial *trial, int64_t ms, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + ms, left;

    while ((left = end_ms - clock_mono_ms()) > 0) {
        int64_t slice = left < TICK_MS ? left : TICK_MS;

        if (build_check(trial->stage->build, err) < 0)
            return -1;
        if (trial->start) {
            if (drain(trial, (uint32_t)slice, err) < 0)
                return -1;
        } else {
            (void)poll(NULL, 0, (int)slice);
        }
        log_tick(&trial->stage->build->log);
    }
    return 0;
}

static int try_ready(struct trial *trial, struct str text, bool *out_ready, struct error *err)
{
    const char *argv[5];
    struct build_command command = shell_command(trial->stage, argv, text);
    struct log_stream out;
    struct build_exit end;
    int r;

    log_stream_open(&out, &trial->stage->build->log, STEP, STORE_LEVEL_DEBUG, "[ready] ");
    command.out = command.err = &out;
    command.timeout_ms = READY_MS;
    r = build_box_run(&trial->box, &command, &end, err);
    log_stream_close(&out);
    *out_ready = r == 0 && end.code == 0;
    return r;
}

static int await_ready(struct trial *trial, struct str text, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + READY_MS, pause_ms = FIRST_PAUSE_MS;
    bool ready = false;

    while (!ready) {
        if (try_ready(trial, text, &ready, err) < 0)
            return error_prefix(err, "ready command failed");
        if (ready)
            break;
        if (clock_mono_ms() > end_ms)
            return error_set(err, ERROR_TIMEOUT, "ready command timed out after %d s",
                             READY_MS / 1000);
        if (pass_time(trial, pause_ms, err) < 0)
            return -1;
        pause_ms = pause_ms * 2 < LAST_PAUSE_MS ? pause_ms * 2 : LAST_PAUSE_MS;
    }
    return 0;
}

/* Without a ready command. */
static int await_port(struct trial *trial, const struct setup *setup, int64_t wait_s,
                      struct error *err)
{
    struct build_log *log = &trial->stage->build->log;
    struct str text = setup_listen_text(setup, 0, &trial->stage->arena);
    int64_t end_ms = clock_mono_ms() + wait_s * 1000;
    bool listens = false;

    for (;;) {
        if (try_ready(trial, text, &listens, err) < 0)
            return -1;
        if (listens || clock_mono_ms() > end_ms)
            break;
        if (pass_time(trial, PORT_PAUSE_MS, err) < 0)
            return -1;
    }
    if (!listens)
        log_line(log, STORE_LEVEL_WARN, STEP,
                 "Nothing listened on %s within %lld s: a create waits at most %d s for it",
                 setup_ports_text(setup, &trial->stage->arena), (long long)wait_s, SETUP_LISTEN_S);
    return 0;
}

static int run_trial(struct trial *trial, struct error *err)
{
    struct stage *stage = trial->stage;
    struct build_log *log = &stage->build->log;
    int64_t wait_s = stage->build->all->config.ready_s;
    struct setup setup = {.start = stage->start_cmd};
    const char *argv[5];
    int r;

    setup_set_ready(&setup, stage->ready_cmd);
    if (stage->start_cmd.len) {
        struct build_command command = shell_command(stage, argv, stage->start_cmd);

        log_line(log, STORE_LEVEL_INFO, STEP, "Running start command: %.*s",
                 STR_ARG(stage->start_cmd));
        if (build_box_start(&trial->box, &command, &trial->start, err) < 0)
            return error_prefix(err, "start command failed");
    }
    if (setup.ready.len) {
        log_line(log, STORE_LEVEL_INFO, STEP, "Waiting for template to be ready: %.*s",
                 STR_ARG(setup.ready));
        r = await_ready(trial, setup.ready, err);
    } else {
        log_line(log, STORE_LEVEL_INFO, STEP,
                 "Waiting for template to be ready: until it listens on %s, at most %lld s",
                 setup_ports_text(&setup, &stage->arena), (long long)wait_s);
        r = await_port(trial, &setup, wait_s, err);
    }
    if (r < 0 || drain(trial, 0, err) < 0)
        return -1;
    log_line(log, STORE_LEVEL_INFO, STEP, "Template is ready");
    return 0;
}

static int try_it(struct stage *stage, struct error *err)
{
    const struct build_box_wants wants = {.layers = stage->layers, .internet = true};
    struct trial trial = {.stage = stage};
    int r;

    log_stream_open(&trial.out, &stage->build->log, STEP, STORE_LEVEL_INFO, "[start] [stdout]: ");
    log_stream_open(&trial.err, &stage->build->log, STEP, STORE_LEVEL_INFO, "[start] [stderr]: ");
    r = build_box_open(&trial.box, stage->build, &wants, err);
    if (r == 0)
        r = run_trial(&trial, err);
    if (trial.start)
        envd_process_free(trial.start);
    log_stream_close(&trial.out);
    log_stream_close(&trial.err);
    if (trial.box.build)
        build_box_close(&trial.box);
    return r;
}

/* What was ready once with the same files and commands is not tried again. */
static int try_once(struct stage *stage, struct error *err)
{
    struct build *build = stage->build;
    struct key_maker *maker;
    struct store_cached cached;
    struct box_spec pin;
    bool found = false;
    char key[KEY_SIZE];

    if (!stage->start_cmd.len && !stage->ready_cmd.len)
        return 0;
    maker = key_new("start");
    key_add(maker, stage->layers);
    key_add(maker, stage->start_cmd);
    key_add(maker, stage->ready_cmd);
    key_add(maker, stage->user);
    key_add(maker, stage->workdir);
    key_add_pairs(maker, stage->env, stage->env_count);
    key_take(maker, key);
    if (!build->recipe.force &&
        cache_find(build, key, &stage->arena, &cached, &pin, &found, err) < 0)
        return -1;
    if (found) {
        layers_unpin(build->all->config.sandboxes, &pin);
        log_line(&build->log, STORE_LEVEL_INFO, STEP, "CACHED Running start command: %.*s",
                 STR_ARG(stage->start_cmd));
        log_line(&build->log, STORE_LEVEL_INFO, STEP, "CACHED Waiting for template to be ready");
        log_line(&build->log, STORE_LEVEL_INFO, STEP, "Template is ready");
        return 0;
    }
    if (try_it(stage, err) < 0)
        return -1;
    return cache_put(build, key, stage->layers, STR_NONE, 0, err);
}

/* ---- the result ---- */

static struct str env_json(struct stage *stage)
{
    auto_json json_t *env = json_of_pairs(stage->env, stage->env_count);
    auto_free char *text = json_text(env);

    return arena_str(&stage->arena, str_of(text));
}

static int store_result(struct build *build, struct stage *stage, struct error *err)
{
    struct store_build row = build->row;
    bool freed = false;

    row.layers = stage->layers;
    row.env = env_json(stage);
    row.default_user = stage->user;
    row.workdir = stage->workdir;
    row.start_cmd = stage->start_cmd;
    row.ready_cmd = stage->ready_cmd;
    row.finished_at_us = clock_wall_us();
    if (store_build_ready(build->all->config.store, &row, &freed, err) < 0)
        return -1;
    if (freed)
        layers_collect_soon(build->all->config.sandboxes);
    warm_expect(build->all->config.sandboxes, row.team_id, row.template_id);
    return 0;
}

int build_finish(struct build *build, struct stage *stage)
{
    const struct recipe *recipe = &build->recipe;
    struct error err = {0};

    log_line(&build->log, STORE_LEVEL_INFO, STEP, "[finalize] Finalizing template build");
    if (recipe->start_cmd.p || recipe->ready_cmd.p) {
        stage->start_cmd = arena_str(&stage->arena, recipe->start_cmd);
        stage->ready_cmd = arena_str(&stage->arena, recipe->ready_cmd);
    }
    if (build_check(build, &err) < 0 || keep_path(stage, &err) < 0 ||
        stage_publish(stage, &err) < 0 || try_once(stage, &err) < 0 || build_check(build, &err) < 0)
        return stage_fail(stage, STEP, &err);
    log_line(&build->log, STORE_LEVEL_INFO, STEP, "[finalize] Build finished in %.1f s",
             (double)(clock_wall_us() - build->row.created_at_us) / 1e6);
    log_flush(&build->log);
    return store_result(build, stage, &err) < 0 ? stage_fail(stage, STEP, &err) : 0;
}
