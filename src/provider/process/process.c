/* Plain directories and processes on a host, isolated from nothing: for those who want exactly that.
 *
 * The same envd as in sandboxes runs outside of one, as an ordinary user, and is spoken to in the
 * same way. It may be served by somebody else (setting socket; or api_url and api_key: a registered
 * runner) or be started here (settings envd and root). Its home is the root; a sandbox is a
 * directory there, named by its id, with a file that holds labels and variables. Every process of a
 * sandbox has its id in the environment, by which all of them are found when it is killed. */
#include "provider/process/process.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"

#define BOX_FILE ".quicksand.json"
#define BOX_ENV  "QUICKSAND_SANDBOX"

enum { BOX_FILE_MAX = 1024 * 1024, PATH_SIZE = 4096, KILL_MS = 30 * 1000 };

/* ---- settings ---- */

static char *option(const json_t *options, const char *name)
{
    struct str value = json_get_str(options, name);

    return value.len ? str_dup(value) : NULL;
}

static void process_close(struct provider *provider)
{
    struct local *local = provider->impl;

    if (!local)
        return;
    process_envd_stop(&local->envd);
    if (local->program && local->socket)
        (void)unlink(local->socket);
    (void)pthread_mutex_destroy(&local->mutex);
    free(local->base);
    free(local->socket);
    free(local->token);
    free(local->host);
    free(local->who);
    free(local->program);
    free(local->root);
    free(local);
    provider->impl = NULL;
}

/* "http://host:port/..." is at "host". */
static char *host_of(const char *url)
{
    struct str rest = str_of(url), host;

    rest = str_skip(rest, (size_t)str_find_str(rest, STR("://")) + 3);
    host = str_split(&rest, '/');
    if (host.len && host.p[0] == '[')
        return str_dup(str_n(host.p, (size_t)str_find(host, ']') + 1));
    return str_dup(str_split(&host, ':'));
}

static int read_settings(struct local *local, const struct provider_config *config,
                         struct error *err)
{
    struct str url = str_of(config->api_url);

    local->socket = option(config->options, "socket");
    local->program = option(config->options, "envd");
    if (!local->program)
        local->program = option(config->options, "agent"); /* its name before */
    local->root = option(config->options, "root");
    if (url.len && !str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return error_set(err, ERROR_INVALID, "'api_url' must begin with http:// or https://");
    if ((url.len != 0) + (local->socket != NULL) + (local->program != NULL) != 1)
        return error_set(err, ERROR_INVALID,
                         "needs one of 'api_url' (a runner), 'socket' (of an envd that runs) and "
                         "'envd' (to be started)");
    if (local->program && !local->root)
        return error_set(err, ERROR_INVALID, "needs 'root', the directory of its sandboxes");
    if (url.len && strchr(config->api_url, '@'))
        return error_set(err, ERROR_INVALID, "'api_url' must not hold a user");
    while (url.len && url.p[url.len - 1] == '/')
        url.len--;
    local->base = url.len ? str_dup(url) : xstrdup("http://localhost");
    local->host = url.len ? host_of(local->base) : xstrdup("127.0.0.1");
    if (local->program)
        local->socket = xasprintf("%s/.quicksand-envd-%d.sock", local->root, (int)getpid());
    if (local->socket && strlen(local->socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return error_set(err, ERROR_INVALID, "the path of envd's socket is too long");
    return 0;
}

static int process_open(struct provider *provider, const struct provider_config *config,
                        struct error *err)
{
    struct local *local = xcalloc(1, sizeof(*local));

    provider->impl = local;
    (void)pthread_mutex_init(&local->mutex, NULL);
    local->envd.parent_fd = -1;
    local->who = xasprintf("provider '%s'", config->name);
    local->token = xstrdup(config->api_key ? config->api_key : "");
    local->public_only = config->public_only;
    provider->caps = (struct provider_caps){
        .features = PROVIDER_FILES | PROVIDER_PTY | PROVIDER_JOB_LOGS | PROVIDER_JOB_STOP |
                    PROVIDER_HOOKS | PROVIDER_PORTS | PROVIDER_EXEC | PROVIDER_FIND,
        .egress = EGRESS_ALLOW_ALL,
        .isolation = ISOLATION_NONE,
    };
    return read_settings(local, config, err);
}

static int listen_unix(const char *path, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)str_copy(str_of(path), address.sun_path, sizeof(address.sun_path));
    (void)unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 128) < 0)
        return error_set_errno(err, errno, "listen on '%.150s'", path);
    return take_fd(&fd);
}

static int start_envd(struct local *local, struct error *err)
{
    auto_close int fd = -1;

    if (mkdir(local->root, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%.200s'", local->root);
    fd = listen_unix(local->socket, err);
    if (fd < 0)
        return -1;
    return process_envd_start(&(struct process_envd_spec){.program = local->program,
                                                          .root = local->root,
                                                          .listen_fd = fd},
                              &local->envd, err);
}

/* envd's address; starts it when it is ours to start. */
static int local_address(struct provider *provider, int64_t deadline_us, struct envd_address *out,
                         struct error *err)
{
    struct local *local = provider->impl;
    int r = 0;

    *out = (struct envd_address){
        .fetch = provider->fetch,
        .who = local->who,
        .base = local->base,
        .unix_path = local->socket,
        .token = str_of(local->token),
        .public_only = local->public_only,
        .deadline_us = deadline_us,
    };
    if (!local->program)
        return 0;
    (void)pthread_mutex_lock(&local->mutex);
    /* One that has died is replaced. */
    if (local->envd.pid > 0 && waitpid(local->envd.pid, NULL, WNOHANG) != 0) {
        local->envd.pid = 0;
        close_fd(&local->envd.parent_fd);
    }
    if (local->envd.pid <= 0)
        r = start_envd(local, err);
    (void)pthread_mutex_unlock(&local->mutex);
    return r < 0 ? error_prefix(err, "%s", local->who) : 0;
}

/* ---- sandboxes ---- */

static int sink_buf(void *arg, struct str data)
{
    return buf_add(arg, data.p, data.len) ? 0 : -1;
}

struct text {
    struct str rest;
};

static ssize_t source_text(void *arg, void *p, size_t size)
{
    struct text *text = arg;
    size_t n = text->rest.len < size ? text->rest.len : size;

    if (n)
        memcpy(p, text->rest.p, n);
    text->rest = str_skip(text->rest, n);
    return (ssize_t)n;
}

static int no_sandbox(const struct local *local, struct str id, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "%s: there is no sandbox '%.*s'", local->who,
                     (int)(id.len < 60 ? id.len : 60), id.p ? id.p : "");
}

static int check_id(const struct local *local, struct str id, struct error *err)
{
    return id_valid(id) ? 0 : no_sandbox(local, id, err);
}

/* ERROR_NOT_FOUND when there is none of that id. */
static int process_load(struct provider *provider, const struct provider_ref *ref,
                        struct arena *arena, struct process_machine *out, struct error *err)
{
    const struct local *local = provider->impl;
    struct envd_address address;
    auto_buf struct buf text = {0};
    auto_json json_t *json = NULL;
    struct error why = {0};
    char path[PATH_SIZE];

    *out = (struct process_machine){0};
    buf_init(&text, BOX_FILE_MAX);
    if (check_id(local, ref->id, err) < 0 ||
        local_address(provider, ref->deadline_us, &address, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%.*s/" BOX_FILE, STR_ARG(ref->id));
    if (envd_read(&address, path, sink_buf, &text, err) < 0)
        return err->code == ERROR_NOT_FOUND ? no_sandbox(local, ref->id, err) : -1;
    if (json_parse(buf_str(&text), &json, &why) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the file of the sandbox '%.*s': %s",
                         local->who, STR_ARG(ref->id), why.message);
    out->sandbox = (struct provider_sandbox){
        .id = arena_str(arena, ref->id),
        .state = PROVIDER_RUNNING,
        .image = arena_str(arena, json_get_str(json, "image")),
        .address = arena_str(arena, json_get_str(json, "directory")),
        .started_at_us = json_integer_value(json_object_get(json, "started_at_us")),
    };
    out->sandbox.label_count =
        json_pairs(json_object_get(json, "labels"), arena, &out->sandbox.labels);
    out->env_count = json_pairs(json_object_get(json, "env"), arena, &out->env);
    return 0;
}

static int process_create(struct provider *provider, const struct provider_spec *spec,
                          struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct provider_ref ref = {.deadline_us = provider_spec_deadline(spec)};
    struct envd_address address;
    auto_json json_t *json = NULL;
    auto_free char *text = NULL;
    struct process_machine machine;
    struct envd_file directory;
    struct text source;
    char id[ID_SIZE], path[PATH_SIZE];

    if (spec->cpu || spec->mem_mb || spec->disk_mb)
        return error_set(err, ERROR_UNSUPPORTED,
                         "provider '%s' does not support limits of cpu and memory", provider->name);
    if (local_address(provider, ref.deadline_us, &address, err) < 0)
        return -1;
    id_make(id);
    ref.id = str_of(id);
    if (envd_make_dir(&address, id, arena, &directory, err) < 0)
        return -1;
    if (!directory.path.len)
        return error_set(err, ERROR_UNAVAILABLE, "%s: envd does not say where '%s' is", address.who,
                         id);
    json = json_pack(
        "{s:o, s:o, s:o, s:I, s:o}", "labels", json_of_pairs(spec->labels, spec->label_count),
        "env", json_of_pairs(spec->env, spec->env_count), "directory", json_str(directory.path),
        "started_at_us", (json_int_t)clock_wall_us(), "image", json_str(spec->image));
    text = json_text(json);
    source = (struct text){str_of(text)};
    (void)snprintf(path, sizeof(path), "%s/" BOX_FILE, id);
    if (envd_write(&address, path, source_text, &source, (int64_t)source.rest.len, err) < 0 ||
        process_load(provider, &ref, arena, &machine, err) < 0) {
        struct error ignored;

        (void)envd_remove(&address, id, &ignored);
        return -1;
    }
    *out = machine.sandbox;
    return 0;
}

static int process_find(struct provider *provider, const struct provider_query *query,
                        struct arena *arena, struct provider_sandbox **out, size_t *out_count,
                        struct error *err)
{
    struct envd_address address;
    struct envd_file *files;
    size_t count, found = 0;

    if (local_address(provider, query->deadline_us, &address, err) < 0 ||
        envd_list(&address, "", arena, &files, &count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++) {
        struct provider_ref ref = {.id = files[i].name, .deadline_us = query->deadline_us};
        struct process_machine machine;
        struct error why = {0};

        if (!files[i].directory || !id_valid(ref.id))
            continue;
        /* One that is just being made or removed has no file. */
        if (process_load(provider, &ref, arena, &machine, &why) < 0) {
            if (why.code == ERROR_NOT_FOUND)
                continue;
            *err = why;
            return -1;
        }
        (*out)[found++] = machine.sandbox;
    }
    *out_count = found;
    return 0;
}

static int process_get(struct provider *provider, const struct provider_ref *ref,
                       struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct process_machine machine;

    if (process_load(provider, ref, arena, &machine, err) < 0)
        return -1;
    *out = machine.sandbox;
    return 0;
}

static int process_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                           struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    (void)ttl_s;
    return process_get(provider, ref, arena, out, err);
}

/* All processes whose environment names the sandbox; again while there are any, as they may start
 * more meanwhile. */
static const char kill_script[] =
    "for round in 1 2 3 4 5 6 7 8; do\n"
    "    found=\n"
    "    for file in $(grep -lzxF -- \"" BOX_ENV "=$1\" /proc/[0-9]*/environ 2>/dev/null); do\n"
    "        pid=${file#/proc/}\n"
    "        kill -KILL \"${pid%/environ}\" 2>/dev/null && found=1\n"
    "    done\n"
    "    [ \"$found\" ] || exit 0\n"
    "done\n"
    "exit 1\n";

static int kill_processes(const struct envd_address *address, struct str id, struct error *err)
{
    auto_free char *name = str_dup(id);
    const char *argv[] = {"/bin/sh", "-c", kill_script, "sh", name, NULL};
    const struct envd_command command = {.argv = argv, .timeout_ms = KILL_MS, .cwd = "/"};
    struct envd_process *process;
    struct envd_event event;
    int r;

    if (envd_start(address, &command, &process, err) < 0)
        return -1;
    do
        r = envd_process_next(process, 2 * KILL_MS, &event, err);
    while (r == 1 && event.kind != ENVD_EXITED);
    envd_process_free(process);
    if (r < 0)
        return -1;
    if (r == 0 || event.exit_code != 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: processes of '%.*s' do not end", address->who,
                         STR_ARG(id));
    return 0;
}

static int process_kill(struct provider *provider, const struct provider_ref *ref,
                        struct error *err)
{
    auto_free char *id = str_dup(ref->id);
    struct envd_address address;
    struct error why = {0};

    if (!id_valid(ref->id))
        return 0;
    if (local_address(provider, ref->deadline_us, &address, err) < 0 ||
        kill_processes(&address, ref->id, err) < 0)
        return -1;
    if (envd_remove(&address, id, &why) < 0 && why.code != ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    return 0;
}

static int process_check(struct provider *provider, struct error *err)
{
    struct envd_address address;

    if (local_address(provider, 0, &address, err) < 0)
        return -1;
    return envd_health(&address, err);
}

static int process_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                           struct arena *arena, struct provider_address *out, struct error *err)
{
    const struct local *local = provider->impl;

    if (check_id(local, ref->id, err) < 0)
        return -1;
    out->url = str_of(arena_printf(arena, "http://%s:%u", local->host, port));
    out->local_url = out->url;
    out->public_only = local->public_only;
    return 0;
}

/* ---- processes and files ---- */

static int process_start(struct provider *provider, const struct provider_ref *ref,
                         const struct provider_command *command, struct provider_process **out,
                         struct error *err)
{
    struct provider_command mine = *command;
    auto_arena struct arena arena = {0};
    struct envd_address address;
    struct pair *env;
    struct process_machine machine;
    char tag[16];
    size_t count = 0;

    if (command->user)
        return error_set(err, ERROR_UNSUPPORTED, "provider '%s' does not support other users",
                         provider->name);
    if (process_load(provider, ref, &arena, &machine, err) < 0 ||
        local_address(provider, ref->deadline_us, &address, err) < 0)
        return -1;
    env = arena_alloc(&arena, (machine.env_count + command->env_count + 3) * sizeof(*env));
    env[count++] = (struct pair){STR("HOME"), machine.sandbox.address};
    /* What is left there ends with the machine, unlike what is in the host's /tmp. */
    env[count++] = (struct pair){STR("TMPDIR"), machine.sandbox.address};
    for (size_t i = 0; i < machine.env_count; i++)
        env[count++] = machine.env[i];
    for (size_t i = 0; i < command->env_count; i++)
        env[count++] = command->env[i];
    env[count++] = (struct pair){STR(BOX_ENV), ref->id};
    mine.env = env;
    mine.env_count = count;
    id_hex(tag, 7);
    mine.tag = arena_printf(&arena, "%.*s/%s", STR_ARG(ref->id), command->tag ? command->tag : tag);
    mine.cwd = !command->cwd ? machine.sandbox.address.p
               : command->cwd[0] == '/'
                   ? command->cwd
                   : arena_printf(&arena, "%s/%s", machine.sandbox.address.p, command->cwd);
    return envd_place_start(&address, &mine, out, err);
}

static int process_attach(struct provider *provider, const struct provider_ref *ref,
                          const char *tag, int64_t pid, struct provider_process **out,
                          struct error *err)
{
    const struct local *local = provider->impl;
    auto_free char *whole = tag ? xasprintf("%.*s/%s", STR_ARG(ref->id), tag) : NULL;
    struct envd_address address;

    if (check_id(local, ref->id, err) < 0 ||
        local_address(provider, ref->deadline_us, &address, err) < 0)
        return -1;
    return envd_place_attach(&address, whole, pid, out, err);
}

/* Relative to the sandbox's directory. The caller frees. */
static int local_path(struct provider *provider, const struct provider_ref *ref, const char *path,
                      struct envd_address *address, char **out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct process_machine machine;

    *out = NULL;
    if (process_load(provider, ref, &arena, &machine, err) < 0 ||
        local_address(provider, ref->deadline_us, address, err) < 0)
        return -1;
    *out = path[0] == '/' ? xstrdup(path) : xasprintf("%.*s/%s", STR_ARG(ref->id), path);
    return 0;
}

static int process_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                        provider_sink_fn *sink, void *arg, struct error *err)
{
    struct envd_address address;
    auto_free char *whole = NULL;

    if (local_path(provider, ref, path, &address, &whole, err) < 0)
        return -1;
    return envd_read(&address, whole, sink, arg, err);
}

static int process_write(struct provider *provider, const struct provider_ref *ref,
                         const char *path, provider_source_fn *source, void *arg, int64_t length,
                         struct error *err)
{
    struct envd_address address;
    auto_free char *whole = NULL;

    if (local_path(provider, ref, path, &address, &whole, err) < 0)
        return -1;
    return envd_write(&address, whole, source, arg, length, err);
}

static int process_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                        struct arena *arena, struct provider_file **out, size_t *out_count,
                        struct error *err)
{
    struct envd_address address;
    auto_free char *whole = NULL;

    if (local_path(provider, ref, path, &address, &whole, err) < 0)
        return -1;
    return envd_place_list(&address, whole, arena, out, out_count, err);
}

static int process_remove(struct provider *provider, const struct provider_ref *ref,
                          const char *path, struct error *err)
{
    struct envd_address address;
    auto_free char *whole = NULL;

    if (local_path(provider, ref, path, &address, &whole, err) < 0)
        return -1;
    return envd_remove(&address, whole, err);
}

static void process_about(const struct provider *provider, struct provider_about *out)
{
    (void)provider;
    out->isolated_by = "nothing";
    out->runs_on = "this host";
}

static const struct provider_ops ops = {
    .type = "process",
    .about = process_about,
    .open = process_open,
    .close = process_close,
    .check = process_check,
    .create = process_create,
    .find = process_find,
    .get = process_get,
    .connect = process_connect,
    .kill = process_kill,
    .address = process_address,
    .start = process_start,
    .attach = process_attach,
    .read = process_read,
    .write = process_write,
    .list = process_list,
    .remove = process_remove,
};

static const char *const aliases[] = {"local", "local-process", "local-runner", "runner", NULL};
static const char *const members[] = {"socket", "envd", "agent", "root", NULL};
const struct provider_type provider_type_process = {
    .ops = &ops, .aliases = aliases, .members = members};
