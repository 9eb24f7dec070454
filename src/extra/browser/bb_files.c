/* Files that go to a session's browser and come from it. */
#include "extra/browser/bb_internal.h"
#include "protocol/http/http_multipart.h"

struct form {
    struct str name; /* of the file, in the arena; STR_NONE = none yet */
    struct buf *data;
    struct arena *arena;
    bool inside;
};

static int on_part(void *arg, struct str name, struct str filename)
{
    struct form *form = arg;

    (void)name;
    form->inside = filename.p && !form->name.p;
    if (form->inside)
        form->name = arena_str(form->arena, filename);
    return 0;
}

static int on_data(void *arg, struct str data)
{
    struct form *form = arg;

    return !form->inside || buf_add_str(form->data, data) ? 0 : -1;
}

static int on_part_end(void *arg)
{
    ((struct form *)arg)->inside = false;
    return 0;
}

int bb_read_file(struct bb_call *call, struct str *name, struct buf *data, struct error *err)
{
    static const struct http_multipart_events events = {on_part, on_data, on_part_end};
    struct form form = {.data = data, .arena = &call->arena};
    struct http_multipart *reader = http_multipart_new(call->body_type, &events, &form);
    bool good;

    if (!reader)
        return error_set(err, ERROR_INVALID, "the body must be multipart/form-data with a 'file'");
    good = http_multipart_feed(reader, call->body) == 0 && http_multipart_complete(reader);
    http_multipart_free(reader);
    if (!good || !form.name.p)
        return error_set(err, ERROR_INVALID, "the form has no 'file', or is not whole");
    *name = form.name;
    return 0;
}

int bb_running_session(struct bb_call *call, struct store_browser_session *out, struct error *err)
{
    if (browser_get(call->bb->config.browsers, call->team_id, call->params[0], &call->arena, out,
                    err) < 0)
        return -1;
    if (browser_runs(out))
        return 0;
    return error_set(err, ERROR_CONFLICT, "session '%.*s' is over (%.*s)", STR_ARG(out->id),
                     STR_ARG(out->status));
}

int bb_sessions_upload(struct bb_call *call, struct error *err)
{
    struct store_browser_session session = {0};
    auto_buf struct buf data = {0};
    struct str name;

    buf_init(&data, BB_FILE_MAX);
    if (bb_running_session(call, &session, err) < 0 || bb_read_file(call, &name, &data, err) < 0 ||
        browser_upload(call->bb->config.browsers, &session, name, buf_str(&data), err) < 0)
        return -1;
    call_answer(&call->call, 200, json_pack("{s:s}", "message", "File uploaded successfully"));
    return 0;
}

static int add_to_zip(void *arg, struct str data, struct error *err)
{
    struct call *call = arg;

    if (call->reply_length + (int64_t)data.len > BROWSER_ZIP_MAX)
        return error_set(err, ERROR_LIMIT, "the downloads are larger than %d MiB",
                         BROWSER_ZIP_MAX >> 20);
    return call_file_add(call, data, err);
}

int bb_sessions_downloads(struct bb_call *call, struct error *err)
{
    struct store_browser_session session = {0};

    if (bb_running_session(call, &session, err) < 0 || call_file_open(&call->call, err) < 0)
        return -1;
    if (browser_downloads(call->bb->config.browsers, &session, add_to_zip, &call->call, err) < 0) {
        call_file_drop(&call->call);
        return -1;
    }
    call_file_answer(&call->call, 200, "application/zip");
    return 0;
}

static int add_to_file(void *arg, struct str data, struct error *err)
{
    return call_file_add(arg, data, err);
}

static int answer_notes(struct bb_call *call, enum browser_notes which, struct error *err)
{
    struct store_browser_session session = {0};

    if (browser_get(call->bb->config.browsers, call->team_id, call->params[0], &call->arena,
                    &session, err) < 0 ||
        call_file_open(&call->call, err) < 0)
        return -1;
    if (browser_notes(call->bb->config.browsers, &session, which, add_to_file, &call->call, err) <
        0) {
        call_file_drop(&call->call);
        return -1;
    }
    call_file_answer(&call->call, 200, "application/json");
    return 0;
}

int bb_sessions_logs(struct bb_call *call, struct error *err)
{
    return answer_notes(call, BROWSER_LOG, err);
}

int bb_sessions_recording(struct bb_call *call, struct error *err)
{
    return answer_notes(call, BROWSER_RECORDING, err);
}
