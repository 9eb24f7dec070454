/* What is wanted goes by standard input, where nothing has to be quoted. */
#include "extra/browser/browser_page.h"

#include <string.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"

enum { TIMEOUT_MS = 30000, GRACE_MS = 10000, FAULT_MAX = 300, COUNT_MAX = 10 };

static int check(const struct browser_page *page, struct error *err)
{
    if (strcmp(page->act, "goto") == 0 && !page->url.len)
        return error_set(err, ERROR_INVALID, "'url' is needed");
    if (strcmp(page->act, "click") == 0 && !page->selector.len && !page->has_place)
        return error_set(err, ERROR_INVALID, "say what to click: 'selector', or 'x' and 'y'");
    if (strcmp(page->act, "type") == 0 && !page->text.len && !page->key.len)
        return error_set(err, ERROR_INVALID, "say what to type: 'text', or a 'key'");
    if (page->count > COUNT_MAX)
        return error_set(err, ERROR_INVALID, "'count' is at most %d", COUNT_MAX);
    return 0;
}

static void add(json_t *wish, const char *name, struct str value)
{
    if (value.len)
        (void)json_object_set_new(wish, name, json_str(value));
}

static json_t *write_wish(const struct browser_page *page)
{
    json_t *wish = json_object();

    add(wish, "url", page->url);
    add(wish, "selector", page->selector);
    add(wish, "button", page->button);
    add(wish, "text", page->text);
    add(wish, "key", page->key);
    if (page->has_place && !page->selector.len) {
        (void)json_object_set_new(wish, "x", json_integer(page->x));
        (void)json_object_set_new(wish, "y", json_integer(page->y));
    }
    if (page->count)
        (void)json_object_set_new(wish, "count", json_integer(page->count));
    if (page->full_page)
        (void)json_object_set_new(wish, "full_page", json_true());
    if (page->timeout_ms)
        (void)json_object_set_new(wish, "timeout_ms", json_integer(page->timeout_ms));
    return wish;
}

static int judge(const struct runtime_result *result, struct error *err)
{
    struct str said = str_trim(buf_str(&result->err));

    if (said.len > FAULT_MAX)
        said.len = FAULT_MAX;
    if (result->exit_code == 127 || result->exit_code == 126)
        return error_set(err, ERROR_CONFLICT,
                         "this sandbox has no browser: it needs the template 'browser', which "
                         "'quicksand template build browser' makes");
    if (result->stopped)
        return error_set(err, ERROR_CONFLICT, "it was cancelled");
    if (result->timed_out)
        return error_set(err, ERROR_CONFLICT, "the browser did not answer in time");
    if (result->exit_code != 0)
        return error_set(err, ERROR_CONFLICT, "%.*s", STR_ARG(said));
    if (result->truncated)
        return error_set(err, ERROR_LIMIT, "what the browser gave is larger than %d MiB",
                         BROWSER_PAGE_MAX >> 20);
    return 0;
}

int browser_page_do(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    const struct browser_page *page, struct buf *out, struct error *err)
{
    /* Without the program the shell says so by its exit code. */
    auto_json json_t *argv =
        json_pack("[s, s, s, s]", "/bin/sh", "-c", "exec browser-do \"$0\"", page->act);
    auto_json json_t *wish = write_wish(page);
    auto_free char *text = json_text(wish);
    struct runtime_command command = {
        .argv = argv,
        .input = str_of(text),
        .timeout_ms = (page->timeout_ms ? page->timeout_ms : TIMEOUT_MS) + GRACE_MS,
        .output_limit = BROWSER_PAGE_MAX,
        .own = true,
        .on_started = page->on_started,
        .on_output_arg = page->on_started_arg};
    struct runtime_result result = {0};
    int r;

    if (check(page, err) < 0)
        return -1;
    r = runtime_exec(runtime, caller, id, &command, &result, err);
    if (r == 0)
        r = judge(&result, err);
    if (r == 0 && result.out.len > out->max)
        r = error_set(err, ERROR_LIMIT, "what the browser gave is larger than %zu MiB",
                      out->max >> 20);
    if (r == 0) {
        buf_done(out);
        *out = result.out;
        result.out = (struct buf){0};
    }
    runtime_result_done(&result);
    return r;
}
