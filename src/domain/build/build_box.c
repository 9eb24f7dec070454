/* Boxes that work for builds: ordinary ones of the engine, with an envd inside, but without a row: nobody can reach
 * them, and after a crash they are leftovers. What comes out of them is from programs that nobody trusts: bounded
 * in size and time. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_warm.h"

enum {
    LIFE_GRACE_S = 120,
    START_GRACE_MS = 5000,
    MEGABYTE = 1024 * 1024,
};

/* ---- feeds ---- */

void build_box_feed_dir(const struct build_box *box, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", box->build->all->feeds, box->id);
}

int build_box_feed_link(const struct build_box *box, const char *path, const char *name,
                        struct error *err)
{
    char to[512];

    (void)snprintf(to, sizeof(to), "%s/%s/%s", box->build->all->feeds, box->id, name);
    if (link(path, to) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "give a file to a box");
    return 0;
}

/* The program lies elsewhere, perhaps on another file system: it is copied once into the feeds' directory and linked from there. */
static int link_unpack(const struct build_box *box, struct error *err)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/unpack", box->build->all->feeds);
    if (access(path, R_OK) < 0 && files_unpack(box->build->all, err) < 0)
        return -1;
    return build_box_feed_link(box, path, "unpack", err);
}

int build_box_prepare(struct build_box *box, struct build *build, struct error *err)
{
    char dir[512];

    *box = (struct build_box){.build = build};
    id_make(box->id);
    if (!build->all->config.unpack)
        return error_set(err, ERROR_UNSUPPORTED,
                         "this server has no program 'unpack', which COPY and images need");
    build_box_feed_dir(box, dir, sizeof(dir));
    if (mkdir(dir, 0755) < 0)
        return error_set_errno(err, errno, "make the directory of a box's files");
    box->has_feed = true;
    if (link_unpack(box, err) < 0) {
        build_box_close(box);
        return -1;
    }
    return 0;
}

static void remove_feed(struct build_box *box)
{
    char path[512];
    int r;

    if (!box->has_feed)
        return;
    build_box_feed_dir(box, path, sizeof(path));
    r = path_remove_tree(AT_FDCWD, path);
    if (r < 0)
        log_warn("build", "remove the files of box=%s: %s", box->id, strerror(-r));
    box->has_feed = false;
}

/* ---- start, end ---- */

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int make_spec(const struct build_box *box, const struct build_box_wants *wants,
                     struct box_spec *out, struct error *err)
{
    const struct builds_config *config = &box->build->all->config;
    const struct store_build *row = &box->build->row;

    *out = (struct box_spec){
        .engine = ENGINE_NATIVE,
        .limits = {.mem_bytes = (uint64_t)at_least(config->mem_mb, row->mem_mb) * MEGABYTE,
                   .disk_bytes = (uint64_t)at_least(config->disk_mb, row->disk_mb) * MEGABYTE,
                   .cpu_count = (uint32_t)at_least(config->cpu_count, row->cpu_count),
                   .pids_max = SANDBOX_PIDS_MAX,
                   .yields = true},
        .network = {.mode = wants->internet ? NETWORK_OPEN : NETWORK_NONE},
        .background = true,
        .feed = wants->feed,
        .volume_count = (uint32_t)wants->volume_count,
    };
    memcpy(out->id, box->id, ID_SIZE);
    if (wants->fill)
        (void)snprintf(out->fill, sizeof(out->fill), "%s", wants->fill);
    for (size_t i = 0; i < wants->volume_count; i++)
        memcpy(&out->volumes[i], &wants->volumes[i], sizeof(out->volumes[i]));
    return spec_set_layers(wants->layers, out, err);
}

/* Until envd answers and knows what it is. fd: a connection to it, or -1. */
static int greet(struct build_box *box, int fd, struct error *err)
{
    struct engine *engine = box->build->all->config.engine;
    const struct setup setup = {0};
    const struct envd_facts facts = {
        .env = "{}",
        .access_token = box->token,
        .template_id = box->build->row.template_id,
        .life_s = box->build->all->config.timeout_s + LIFE_GRACE_S,
        .disk_mb = at_least(box->build->all->config.disk_mb, box->build->row.disk_mb),
        .setup = &setup};
    auto_buf struct buf body = {0};
    auto_close int own_fd = -1;
    struct box_usage usage = {0};

    id_hex(box->token, 24);
    if (fd < 0 && envd_ready(engine, box->id, &own_fd, err) == 0)
        fd = own_fd;
    if (fd < 0 || envd_init_body(&facts, &body, err) < 0 ||
        envd_init(engine, box->id, fd, buf_str(&body), err) < 0)
        return -1;
    if (engine->ops->usage(engine, box->id, &usage, err) < 0)
        return -1;
    box->pids = usage.pids;
    return 0;
}

/* Its feed goes by its id. */
static int set_id(struct build_box *box, const char *id, struct error *err)
{
    struct build_box renamed = *box;
    char from[512], to[512];

    memcpy(renamed.id, id, ID_SIZE);
    build_box_feed_dir(box, from, sizeof(from));
    build_box_feed_dir(&renamed, to, sizeof(to));
    if (box->has_feed && rename(from, to) < 0)
        return error_set_errno(err, errno, "rename the directory of a box's files");
    memcpy(box->id, id, ID_SIZE);
    return 0;
}

/* 1: it failed, and another may be started with the id that the spec has now. */
static int claim(struct build_box *box, struct warm_box *blank, struct box_spec *spec, int *out_fd,
                 struct error *err)
{
    struct sandboxes *sandboxes = box->build->all->config.sandboxes;
    struct box_info info;
    char fresh[ID_SIZE];

    if (set_id(box, blank->id, err) < 0) {
        warm_put_back(sandboxes, spec, STR(""), blank);
        return -1;
    }
    if (warm_claim(sandboxes, blank, spec, &info, out_fd, err) == 0)
        return 0;
    log_warn("build", "blank box=%s: %s, starting another", box->id, err->message);
    id_make(fresh);
    memcpy(spec->id, fresh, ID_SIZE);
    return set_id(box, fresh, err) < 0 ? -1 : 1;
}

/* Of a blank one when there is one; when that fails, anew. *out_fd: a connection to its envd, or -1. */
static int begin(struct build_box *box, struct box_spec *spec, int *out_fd, struct error *err)
{
    struct engine *engine = box->build->all->config.engine;
    struct warm_box *blank = warm_take_blank(box->build->all->config.sandboxes, spec);
    struct box_info info;
    int r = blank ? claim(box, blank, spec, out_fd, err) : 1;

    return r > 0 ? engine->ops->start(engine, spec, &info, err) : r;
}

int build_box_open(struct build_box *box, struct build *build, const struct build_box_wants *wants,
                   struct error *err)
{
    auto_close int envd_fd = -1;
    struct box_spec spec;

    if (!box->id[0]) {
        *box = (struct build_box){.build = build};
        id_make(box->id);
    }
    if (build_check(build, err) < 0 || space_check(build->all->config.sandboxes, err) < 0 ||
        make_spec(box, wants, &spec, err) < 0 || begin(box, &spec, &envd_fd, err) < 0)
        return -1;
    box->runs = true;
    if (greet(box, envd_fd, err) == 0)
        return 0;
    build_box_close(box);
    return -1;
}

void build_box_close(struct build_box *box)
{
    struct error err = {0};

    if (box->runs && box->build->all->config.engine->ops->kill(box->build->all->config.engine,
                                                               box->id, &err) < 0)
        log_warn("build", "end box=%s: %s", box->id, err.message);
    box->runs = false;
    remove_feed(box);
    box->id[0] = '\0';
}

/* ---- commands ---- */

static int start_command(struct build_box *box, const struct build_command *command,
                         struct envd_process **out, struct error *err)
{
    const struct envd_address address =
        sandboxes_envd(box->build->all->config.sandboxes, "build", box->id, str_of(box->token));
    const struct envd_command start = {.argv = command->argv,
                                       .env = command->env,
                                       .env_count = command->env_count,
                                       .cwd = command->cwd,
                                       .user = command->user ? command->user : "root",
                                       .open_stdin = command->input.p != NULL};

    return envd_start(&address, &start, out, err);
}

static int take_output(struct build_box *box, const struct build_command *command,
                       const struct envd_event *event, struct error *err)
{
    bool is_out = event->kind == ENVD_STDOUT;
    struct log_stream *stream = is_out ? command->out : command->err;
    int r;

    if (is_out && command->spool_fd >= 0) {
        if (build_grow(box->build, (int64_t)event->data.len, err) < 0)
            return -1;
        r = fd_write_full(command->spool_fd, event->data.p, event->data.len);
        return r < 0 ? error_set_errno(err, -r, "keep what is copied") : 0;
    }
    if (is_out ? command->text : command->errors)
        (void)buf_add_str(is_out ? command->text : command->errors, event->data);
    if (stream)
        log_stream_add(stream, event->data);
    return 0;
}

static int follow(struct build_box *box, struct envd_process *process,
                  const struct build_command *command, struct build_exit *out, struct error *err)
{
    int64_t end_ms = command->timeout_ms ? clock_mono_ms() + command->timeout_ms : INT64_MAX;
    struct envd_event event;

    for (;;) {
        int r = envd_process_next(process, TICK_MS, &event, err);

        if (r < 0 || build_check(box->build, err) < 0)
            return -1;
        if (clock_mono_ms() > end_ms)
            return error_set(err, ERROR_TIMEOUT, "it took longer than %lld s",
                             (long long)command->timeout_ms / 1000);
        log_tick(&box->build->log);
        if (r == 0)
            continue;
        if (event.kind == ENVD_EXITED) {
            *out = (struct build_exit){event.exit_code, event.out_of_memory};
            return 0;
        }
        if (event.kind != ENVD_STARTED && take_output(box, command, &event, err) < 0)
            return -1;
    }
}

int build_box_start(struct build_box *box, const struct build_command *command,
                    struct envd_process **out, struct error *err)
{
    return start_command(box, command, out, err);
}

int build_box_run(struct build_box *box, const struct build_command *command,
                  struct build_exit *out, struct error *err)
{
    struct envd_process *process;
    int r = 0;

    *out = (struct build_exit){0};
    if (start_command(box, command, &process, err) < 0)
        return -1;
    if (command->input.p)
        r = envd_process_feed(process, command->input, err);
    if (r == 0)
        r = follow(box, process, command, out, err);
    envd_process_free(process);
    return r;
}

int build_box_must(struct build_box *box, const struct build_command *command, const char *what,
                   struct error *err)
{
    auto_buf struct buf said = {0};
    struct build_command run = *command;
    struct build_exit end;
    struct str last;

    buf_init(&said, 64 * 1024);
    run.errors = &said;
    if (build_box_run(box, &run, &end, err) < 0)
        return error_prefix(err, "%s", what);
    if (end.code == 0)
        return 0;
    last = str_trim(buf_str(&said));
    for (ptrdiff_t at; (at = str_find(last, '\n')) >= 0;)
        last = str_skip(last, (size_t)at + 1);
    return error_set(err, ERROR_INVALID, "%s: exit status %d%s%.*s", what, end.code,
                     last.len ? ": " : "", (int)(last.len < 200 ? last.len : 200), last.p);
}

int build_box_calm(struct build_box *box, struct error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", "kill -9 -1", NULL};
    const struct build_command command = {.argv = argv, .spool_fd = -1};
    struct engine *engine = box->build->all->config.engine;
    struct box_usage usage = {0};
    struct build_exit end;

    if (engine->ops->usage(engine, box->id, &usage, err) < 0)
        return -1;
    if (usage.pids <= box->pids)
        return 0;
    return build_box_run(box, &command, &end, err);
}
