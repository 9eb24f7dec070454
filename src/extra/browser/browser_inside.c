/* What a session asks of its sandbox: programs of its template, and files, through envd. What comes back is from inside: bounded in size and
 * time. */
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_envd.h"
#include "extra/browser/browser_internal.h"
#include "protocol/json/json_shape.h"

enum {
    TIMEOUT_MS = 60 * 1000,
    OUTPUT_MAX = 64 * 1024,
    FAULT_MAX = 200,
    TICK_MS = 1000,
};

/* Where the sandbox's envd is; strings live in the arena. */
static int find_envd(struct browsers *all, const struct store_browser_session *session,
                     struct arena *arena, struct envd_address *out, struct error *err)
{
    struct sandbox_view view = {0};

    if (sandbox_get(all->config.sandboxes, session->team_id, session->sandbox_id, arena, &view,
                    err) < 0)
        return -1;
    *out = sandboxes_envd(all->config.sandboxes, "browser", view.id.p, view.access_token);
    return 0;
}

static int judge(const struct envd_event *event, const struct buf *said, struct error *err)
{
    struct str last = str_trim(buf_str(said));

    if (event->exit_code == 0)
        return 0;
    if (last.len > FAULT_MAX)
        last = str_skip(last, last.len - FAULT_MAX);
    return error_set(err, ERROR_CONFLICT, "%.*s", (int)(last.len ? last.len : 18),
                     last.len ? last.p : "the browser failed");
}

static int follow(struct envd_process *process, const struct inside_command *command,
                  browser_sink_fn *sink, void *arg, struct error *err)
{
    int64_t limit = command->timeout_ms ? command->timeout_ms : TIMEOUT_MS;
    int64_t end_ms = clock_mono_ms() + limit;
    auto_buf struct buf said = {0};
    struct envd_event event;

    buf_init(&said, OUTPUT_MAX);
    for (;;) {
        int r = envd_process_next(process, TICK_MS, &event, err);

        if (r < 0)
            return -1;
        if (clock_mono_ms() > end_ms)
            return error_set(err, ERROR_TIMEOUT, "the browser took longer than %lld s",
                             (long long)limit / 1000);
        if (r == 0)
            continue;
        if (event.kind == ENVD_EXITED)
            return judge(&event, &said, err);
        if (event.kind == ENVD_STDERR)
            (void)buf_add_str(&said, event.data);
        if (event.kind == ENVD_STDOUT && sink && sink(arg, event.data, err) < 0)
            return -1;
    }
}

static int add_to_buf(void *arg, struct str data, struct error *err)
{
    struct buf *out = arg;

    if (buf_add_str(out, data))
        return 0;
    return out->refused ? buf_refuse(out, err)
                        : error_set(err, ERROR_LIMIT,
                                    "what the browser gave is longer than %zu bytes", out->max);
}

int inside_run(struct browsers *all, const struct store_browser_session *session,
               const struct inside_command *command, struct buf *out, struct error *err)
{
    return inside_run_to(all, session, command, out ? add_to_buf : NULL, out, err);
}

int inside_run_to(struct browsers *all, const struct store_browser_session *session,
                  const struct inside_command *command, browser_sink_fn *sink, void *arg,
                  struct error *err)
{
    auto_arena struct arena arena = {0};
    struct envd_command start = {
        .argv = command->argv, .user = "user", .open_stdin = command->input.p != NULL};
    struct envd_process *process;
    struct envd_address address;
    int r = 0;

    start.timeout_ms = command->timeout_ms ? command->timeout_ms : TIMEOUT_MS;
    if (find_envd(all, session, &arena, &address, err) < 0 ||
        envd_start(&address, &start, &process, err) < 0)
        return -1;
    if (command->input.p)
        r = envd_process_feed(process, command->input, err);
    if (r == 0)
        r = follow(process, command, sink, arg, err);
    envd_process_free(process);
    return r;
}

/* ---- files ---- */

struct reading {
    struct buf *out;
    int64_t end_ms; /* an envd that sends a byte now and then must not hold a worker for longer */
};

static int take(void *arg, struct str data)
{
    struct reading *reading = arg;

    return clock_mono_ms() < reading->end_ms && buf_add_str(reading->out, data) ? 0 : -1;
}

int inside_read(struct browsers *all, const struct store_browser_session *session, const char *path,
                struct buf *out, struct error *err)
{
    struct reading reading = {.out = out, .end_ms = clock_mono_ms() + TIMEOUT_MS};
    auto_arena struct arena arena = {0};
    struct envd_address address;

    if (find_envd(all, session, &arena, &address, err) < 0)
        return -1;
    return envd_read(&address, path, take, &reading, err);
}

static ssize_t give(void *arg, void *p, size_t size)
{
    struct str *rest = arg;
    size_t count = rest->len < size ? rest->len : size;

    if (count)
        memcpy(p, rest->p, count);
    *rest = str_skip(*rest, count);
    return (ssize_t)count;
}

int inside_write(struct browsers *all, const struct store_browser_session *session,
                 const char *path, struct str data, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct envd_address address;

    if (find_envd(all, session, &arena, &address, err) < 0)
        return -1;
    return envd_write(&address, path, give, &data, (int64_t)data.len, err);
}

/* ---- what sessions offer of it ---- */

int browser_pages(struct browsers *all, const struct store_browser_session *session, json_t **out,
                  struct error *err)
{
    const char *const argv[] = {
        "/usr/bin/curl", "-sf", "-m", "10", "http://127.0.0.1:9222/json/list", NULL};
    const struct inside_command command = {.argv = argv};
    auto_buf struct buf text = {0};
    json_t *list, *page;
    size_t i;

    buf_init(&text, (size_t)16 * OUTPUT_MAX);
    if (inside_run(all, session, &command, &text, err) < 0 ||
        json_parse(buf_str(&text), &list, err) < 0)
        return -1;
    *out = json_array();
    json_array_foreach (list, i, page)
        if (str_is(json_get_str(page, "type"), "page"))
            (void)json_array_append(*out, page);
    json_decref(list);
    return 0;
}

/* The last part of it; names that are none are refused. */
static int plain_name(struct str name, struct str *out, struct error *err)
{
    for (ptrdiff_t at; (at = str_find(name, '/')) >= 0;)
        name = str_skip(name, (size_t)at + 1);
    for (ptrdiff_t at; (at = str_find(name, '\\')) >= 0;)
        name = str_skip(name, (size_t)at + 1);
    *out = name;
    if (!name.len || name.len > 255 || str_is(name, ".") || str_is(name, "..") ||
        memchr(name.p, '\0', name.len) || !str_valid_utf8(name))
        return error_set(err, ERROR_INVALID, "the file needs a name of at most 255 bytes");
    return 0;
}

int browser_upload(struct browsers *all, const struct store_browser_session *session,
                   struct str name, struct str data, struct error *err)
{
    auto_free char *path = NULL;

    if (plain_name(name, &name, err) < 0)
        return -1;
    path = xasprintf("/tmp/.uploads/%.*s", STR_ARG(name));
    return inside_write(all, session, path, data, err);
}

int browser_downloads(struct browsers *all, const struct store_browser_session *session,
                      browser_sink_fn *sink, void *arg, struct error *err)
{
    static const char script[] =
        "import io, os, sys, zipfile\n"
        "out = io.BytesIO()\n"
        "with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED, strict_timestamps=False) as z:\n"
        "    for root, _, files in os.walk('" BROWSER_HOME "/downloads'):\n"
        "        for f in files:\n"
        "            p = os.path.join(root, f)\n"
        "            if os.path.isfile(p) and not f.endswith('.crdownload'):\n"
        "                z.write(p, os.path.relpath(p, '" BROWSER_HOME "/downloads'))\n"
        "sys.stdout.buffer.write(out.getvalue())\n";
    const char *const argv[] = {"/usr/bin/python3", "-I", "-c", script, NULL};
    const struct inside_command command = {.argv = argv};

    return inside_run_to(all, session, &command, sink, arg, err);
}
