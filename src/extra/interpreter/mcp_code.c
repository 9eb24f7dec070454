/* run_code: a cell like in a notebook. What it prints is told as progress; pictures among its results are pictures for the client, and
 * left out of what is structured. */
#include "extra/core/extra.h"
#include "extra/mcp/interpreter_tools_json.h"
#include "extra/mcp/mcp_tool.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "extra/interpreter/code.h"
#include "extra/mcp/mcp_output.h"
#include "protocol/json/json_shape.h"

#define TEMPLATE "code-interpreter-v1"

enum { RESULTS_MAX = 6 * 1024 * 1024 }; /* bytes of all results of a cell */

struct cell {
    struct mcp_call *call;
    struct mcp_capture streams[2]; /* stdout, stderr */
    json_t *results, *shown;       /* as structured, as content */
    size_t size;
    int left_out; /* results */
};

/* ---- results ---- */

static bool is_picture(const char *format)
{
    return strcmp(format, "png") == 0 || strcmp(format, "jpeg") == 0;
}

static void show_text(struct cell *cell, struct str text)
{
    (void)json_array_append_new(cell->shown,
                                json_pack("{s:s, s:o}", "type", "text", "text", json_str(text)));
}

/* Whether there was one. */
static bool show_pictures(struct cell *cell, const json_t *result)
{
    static const char *const formats[][2] = {{"png", "image/png"}, {"jpeg", "image/jpeg"}};
    bool any = false;

    for (size_t i = 0; i < 2; i++) {
        struct str data = str_trim(json_get_str(result, formats[i][0]));

        if (!data.len)
            continue;
        any = true;
        (void)json_array_append_new(cell->shown,
                                    json_pack("{s:s, s:o, s:s}", "type", "image", "data",
                                              json_str(data), "mimeType", formats[i][1]));
    }
    return any;
}

static void show_document(struct cell *cell, const json_t *result)
{
    auto_free char *uri = xasprintf("cell:///results/%zu.pdf", json_array_size(cell->results));

    (void)json_array_append_new(cell->shown,
                                json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "resource",
                                          "resource", "uri", uri, "mimeType", "application/pdf",
                                          "blob", json_str(str_trim(json_get_str(result, "pdf")))));
}

/* The one that reads best: IPython says of some only that they are objects of it. */
static void show_best_text(struct cell *cell, const json_t *result)
{
    static const char *const order[] = {"markdown", "text", "latex", "html", "svg", "javascript"};
    auto_free char *other = NULL;

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct str text = json_get_str(result, order[i]);

        if (text.len && !str_starts(text, STR("<IPython.core.display."))) {
            show_text(cell, text);
            return;
        }
    }
    if (json_object_get(result, "json"))
        other = json_dumps(json_object_get(result, "json"), JSON_ENCODE_ANY | JSON_COMPACT);
    if (other)
        show_text(cell, str_of(other));
}

/* What is shown as a picture or a document is only named here. */
static json_t *without_bytes(json_t *result)
{
    json_t *out = json_object(), *formats = json_array(), *value;
    const char *key;

    json_object_foreach (result, key, value) {
        if (strcmp(key, "type") == 0)
            continue;
        if (strcmp(key, "is_main_result") != 0 && strcmp(key, "extra") != 0)
            (void)json_array_append_new(formats, json_string(key));
        if (!is_picture(key) && strcmp(key, "pdf") != 0)
            (void)json_object_set(out, key, value);
    }
    (void)json_object_set_new(out, "formats", formats);
    return out;
}

static void add_result(struct cell *cell, json_t *result, size_t size)
{
    cell->size += size;
    if (cell->size > RESULTS_MAX) {
        cell->left_out++;
        return;
    }
    if (json_get_str(result, "pdf").len)
        show_document(cell, result);
    else if (!show_pictures(cell, result))
        show_best_text(cell, result);
    (void)json_array_append_new(cell->results, without_bytes(result));
}

/* ---- while it runs ---- */

static int on_line(void *arg, struct str text)
{
    struct cell *cell = arg;
    auto_json json_t *line = NULL;
    struct error ignored = {0};
    struct str type, printed;

    if (mcp_running_cancelled(cell->call))
        return -1;
    if (!text.p)
        return mcp_progress_flush(cell->call) < 0 ? -1 : mcp_beat(cell->call);
    if (json_parse(text, &line, &ignored) < 0)
        return 0;
    type = json_get_str(line, "type");
    if (str_is(type, "result"))
        add_result(cell, line, text.len);
    if (!str_is(type, "stdout") && !str_is(type, "stderr"))
        return 0;
    printed = json_get_str(line, "text");
    mcp_capture_add(&cell->streams[str_is(type, "stderr")], printed);
    return mcp_progress_add(cell->call, printed);
}

/* ---- begin and end ---- */

static void add_printed(struct str out, struct str err, struct mcp_outcome *outcome)
{
    auto_buf struct buf text = {0};

    buf_init(&text, out.len + err.len + 64);
    (void)buf_add_str(&text, out);
    if (err.len)
        (void)buf_printf(&text, "%s[stderr]\n", out.len && !str_ends(out, STR("\n")) ? "\n" : "");
    (void)buf_add_str(&text, err);
    if (text.len)
        mcp_outcome_text(outcome, buf_str(&text));
}

/* What is worth knowing about the end. */
static void add_end(struct cell *cell, const json_t *done, struct mcp_outcome *outcome)
{
    struct str traceback = json_get_str(json_object_get(done, "error"), "traceback");
    struct arena *arena = &cell->call->arena;

    if (traceback.len)
        mcp_outcome_text(outcome, traceback);
    if (cell->left_out)
        mcp_outcome_text(outcome, str_of(arena_printf(arena,
                                                      "[%d results left out: together they are "
                                                      "larger than %d MiB]",
                                                      cell->left_out, RESULTS_MAX >> 20)));
    if (json_is_true(json_object_get(done, "timed_out")))
        mcp_outcome_text(outcome, STR("[it took too long and was interrupted]"));
    if (!json_array_size(outcome->content))
        mcp_outcome_text(outcome, STR("[nothing printed, no result]"));
}

static void tell_end(struct cell *cell, struct str id, json_t *done, struct mcp_outcome *outcome)
{
    struct arena *arena = &cell->call->arena;
    bool truncated = cell->left_out || mcp_capture_missing(&cell->streams[0]) > 0 ||
                     mcp_capture_missing(&cell->streams[1]) > 0;
    struct str out = mcp_capture_text(&cell->streams[0], arena);
    struct str err = mcp_capture_text(&cell->streams[1], arena);

    (void)mcp_progress_flush(cell->call);
    outcome->content = json_array();
    add_printed(out, err, outcome);
    (void)json_array_extend(outcome->content, cell->shown);
    add_end(cell, done, outcome);
    (void)json_object_set_new(done, "sandbox_id", json_str(id));
    (void)json_object_set_new(done, "stdout", json_str(out));
    (void)json_object_set_new(done, "stderr", json_str(err));
    (void)json_object_set(done, "results", cell->results);
    (void)json_object_set_new(done, "truncated", json_boolean(truncated));
    mcp_outcome_json(outcome, json_incref(done));
}

static int read_code(json_t *args, struct runtime_code *out, struct error *err)
{
    *out = (struct runtime_code){.code = json_get_str(args, "code"),
                                 .language = json_get_str(args, "language"),
                                 .context_id = json_get_str(args, "context_id"),
                                 .env = json_object_get(args, "env"),
                                 .timeout_ms = mcp_arg_int(args, "timeout_s", 0) * 1000};
    if (out->language.len && out->context_id.len)
        return error_set(err, ERROR_INVALID, "give either 'language' or 'context_id'");
    return 0;
}

static int mcp_run_code(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                        struct error *err)
{
    size_t limit = (size_t)mcp_arg_int(args, "output_limit", MCP_OUTPUT_DEFAULT);
    struct cell cell = {.call = call};
    auto_json json_t *done = NULL;
    struct runtime_code code;
    struct str id;
    int r;

    if (read_code(args, &code, err) < 0 || mcp_sandbox_of(call, args, TEMPLATE, &id, err) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        mcp_capture_init(&cell.streams[i], limit);
    cell.results = json_array();
    cell.shown = json_array();
    code.on_line = on_line;
    code.arg = &cell;
    r = runtime_code(call->mcp->config.runtime, &call->caller, id, &code, &done, err);
    if (r == 0)
        tell_end(&cell, id, done, out);
    json_decref(cell.results);
    json_decref(cell.shown);
    for (int i = 0; i < 2; i++)
        mcp_capture_done(&cell.streams[i]);
    return r;
}

static const struct mcp_tool rows[] = {
    {"run_code", mcp_run_code, 0},
    {NULL, NULL, 0},
};
static const struct mcp_tools tools = {rows, interpreter_tools_json};

const struct extra extra_interpreter_tools = {.name = "interpreter", .tools = &tools};
