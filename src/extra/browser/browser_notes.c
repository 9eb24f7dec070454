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

enum {
    NOTES_MAX = 32 << 20,
    LINE_MAX = 4 << 20, /* of an entry: it is parsed in memory */
    PIECE_MAX = 256 << 10,
    PATH_SIZE = FILE_PATH_SIZE,
};

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

/* Entries on their way to the sink. */
struct entries {
    struct str session_id;
    browser_sink_fn *sink;
    void *arg;
    struct buf text; /* those that the sink does not have yet */
    bool any;
};

static int pass_on(struct entries *entries, struct error *err)
{
    int r = entries->sink(entries->arg, buf_str(&entries->text), err);

    buf_clear(&entries->text);
    return r;
}

/* A line that is an object, with the session's id; others are left out. */
static int add_line(struct entries *entries, struct str line, struct error *err)
{
    auto_json json_t *json = NULL;
    auto_free char *text = NULL;
    struct error ignored;

    if (!line.len || line.len > LINE_MAX || json_parse(line, &json, &ignored) < 0 ||
        !json_is_object(json))
        return 0;
    if (!json_object_get(json, "sessionId"))
        (void)json_object_set_new(json, "sessionId", json_str(entries->session_id));
    text = json_text(json);
    if (entries->text.len + strlen(text) + 2 > PIECE_MAX && pass_on(entries, err) < 0)
        return -1;
    if (entries->any)
        (void)buf_add_char(&entries->text, ',');
    (void)buf_add_str(&entries->text, str_of(text));
    entries->any = true;
    return 0;
}

static int pass_lines(struct entries *entries, struct str text, struct error *err)
{
    (void)buf_add_char(&entries->text, '[');
    while (text.len)
        if (add_line(entries, str_split(&text, '\n'), err) < 0)
            return -1;
    (void)buf_add_char(&entries->text, ']');
    return pass_on(entries, err);
}

int browser_notes(struct browsers *all, const struct store_browser_session *session,
                  enum browser_notes which, browser_sink_fn *sink, void *arg, struct error *err)
{
    struct entries entries = {.session_id = session->id, .sink = sink, .arg = arg};
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
    /* A line may be longer in JSON of ours than in the guest's. */
    buf_init(&entries.text, PIECE_MAX + 6 * LINE_MAX);
    r = pass_lines(&entries, buf_str(&text), err);
    buf_done(&entries.text);
    return r;
}
