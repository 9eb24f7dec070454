/* What happens in a session's pages, as a program inside writes it down: lines of JSON, which are copied out before the
 * sandbox goes, if the session was asked for them (a guest can write these files, too). They are from inside, so a line
 * that is not an object is left out. Sessions that time out take theirs with them. */
#include <fcntl.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "extra/browser/browser_internal.h"
#include "protocol/json/json_shape.h"

enum { NOTES_MAX = 32 << 20, PATH_SIZE = FILE_PATH_SIZE };

static const char *const names[] = {[BROWSER_LOG] = "log", [BROWSER_RECORDING] = "record"};
static const enum browser_file files[] = {
    [BROWSER_LOG] = FILE_LOG, [BROWSER_RECORDING] = FILE_RECORD};

int notes_begin(struct browsers *all, const struct store_browser_session *session, bool log,
                bool record, struct error *err)
{
    const char *argv[] = {"/usr/local/bin/browser-witness", log ? "log" : "record",
                          log && record ? "record" : NULL, NULL};
    const struct inside_command command = {.argv = argv};

    return log || record ? inside_run(all, session, &command, NULL, err) : 0;
}

static void inside_path(enum browser_notes which, char out[PATH_SIZE])
{
    (void)snprintf(out, PATH_SIZE, BROWSER_HOME "/.browser/%s.jsonl", names[which]);
}

static void keep(struct browsers *all, const struct store_browser_session *session,
                 enum browser_notes which)
{
    auto_buf struct buf text = {0};
    struct error err = {0};
    char path[PATH_SIZE];

    buf_init_charged(&text, NOTES_MAX);
    inside_path(which, path);
    if (inside_read(all, session, path, &text, &err) < 0 ||
        browser_file_keep(all, files[which], session->team_id, session->id, buf_str(&text), &err) <
            0)
        log_warn("browser", "session=%.*s: its %s is not kept: %s", STR_ARG(session->id),
                 names[which], err.message);
}

void notes_keep(struct browsers *all, const struct store_browser_session *session)
{
    browser_files_prune(all);
    if (session->wants_log)
        keep(all, session, BROWSER_LOG);
    if (session->wants_record)
        keep(all, session, BROWSER_RECORDING);
}

/* ---- reading ---- */

/* Each line gets the session's id. */
static size_t lines_cost(struct str text)
{
    enum { LINE_COST = 512 };
    size_t lines = 1;

    for (size_t i = 0; i < text.len; i++)
        lines += text.p[i] == '\n';
    return lines * LINE_COST;
}

static json_t *read_lines(struct str text, struct str session_id)
{
    json_t *out = json_array(), *line;
    struct error ignored;

    while (text.len) {
        struct str one = str_split(&text, '\n');

        line = NULL;
        if (!one.len || json_parse(one, &line, &ignored) < 0)
            continue;
        if (json_is_object(line) && !json_object_get(line, "sessionId"))
            (void)json_object_set_new(line, "sessionId", json_str(session_id));
        if (json_is_object(line))
            (void)json_array_append(out, line);
        json_decref(line);
    }
    return out;
}

int browser_notes(struct browsers *all, const struct store_browser_session *session,
                  enum browser_notes which, json_t **out, struct error *err)
{
    auto_buf struct buf text = {0};
    char path[PATH_SIZE];
    int r;

    buf_init_charged(&text, NOTES_MAX);
    if (browser_runs(session)) {
        inside_path(which, path);
        r = inside_read(all, session, path, &text, err);
    } else {
        browser_file_path(all, files[which], session->id, path);
        r = fd_read_file_at(AT_FDCWD, path, &text) < 0 ? -1 : 0;
    }
    if (text.refused)
        return buf_refuse(&text, err);
    if (r < 0)
        return error_set(err, ERROR_NOT_FOUND,
                         "session '%.*s' has no %s: ask for it with browserSettings.%s",
                         STR_ARG(session->id), which == BROWSER_LOG ? "log" : "recording",
                         which == BROWSER_LOG ? "logSession" : "recordSession");
    if (buf_account_reserve(json_cost(buf_str(&text)) + lines_cost(buf_str(&text)), err) < 0)
        return -1;
    *out = read_lines(buf_str(&text), session->id);
    return 0;
}
