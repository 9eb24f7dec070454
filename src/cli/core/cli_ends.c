/* The end of a sandbox of this server's engine comes from the E2B API. A sandbox elsewhere ends when nobody has used it
 * for its idle time. */
#include "cli/core/cli_ends.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"

enum { PAGE = 100 };

/* Maps the id of each running sandbox of the engine to its end. */
static json_t *read_all(struct cli *cli, struct error *err)
{
    auto_json json_t *all = json_object();
    auto_buf struct buf target = {0}, next = {0};

    buf_init(&target, HTTP_URL_MAX);
    buf_init(&next, 256);
    do {
        auto_json json_t *page = NULL;
        json_t *row;
        size_t i;

        buf_clear(&target);
        (void)buf_printf(&target, "/v2/sandboxes?state=running&limit=%d", PAGE);
        if (next.len) {
            (void)buf_add_str(&target, STR("&nextToken="));
            cli_escape(&target, next.p);
        }
        if (cli_call(&cli->server, "GET", target.p, NULL, &page, &next, err) < 0)
            return NULL;
        json_array_foreach (page, i, row)
            if (json_is_string(json_object_get(row, "sandboxID")))
                (void)json_object_set(all, json_string_value(json_object_get(row, "sandboxID")),
                                      json_object_get(row, "endAt"));
    } while (next.len);
    return json_incref(all);
}

static json_t *idle_end(const json_t *row)
{
    int64_t idle_s = json_integer_value(json_object_get(row, "idle_timeout")), used_us;
    char text[CLOCK_TEXT_SIZE];

    if (idle_s <= 0 || !clock_parse(json_get_str(row, "last_used_at"), &used_us))
        return json_null();
    clock_format(used_us + idle_s * 1000000, text);
    return json_string(text);
}

/* end: by the engine; NULL when the sandbox is elsewhere. */
static void set_end(json_t *row, json_t *end)
{
    (void)json_object_set_new(row, CLI_ENDS_AT, end ? json_incref(end) : idle_end(row));
}

static bool runs(const json_t *row)
{
    return str_is(json_get_str(row, "state"), "running");
}

int cli_ends_add(struct cli *cli, const json_t *rows, struct error *err)
{
    auto_json json_t *known = NULL;
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        const char *id = json_string_value(json_object_get(row, "id"));

        if (!runs(row)) {
            (void)json_object_set_new(row, CLI_ENDS_AT, json_null());
            continue;
        }
        if (!known && !(known = read_all(cli, err)))
            return -1;
        set_end(row, id ? json_object_get(known, id) : NULL);
    }
    return 0;
}

int cli_ends_add_one(struct cli *cli, json_t *row, struct error *err)
{
    const char *id = json_string_value(json_object_get(row, "id"));
    auto_buf struct buf target = {0};
    auto_json json_t *engine = NULL;

    if (!id || !runs(row)) {
        (void)json_object_set_new(row, CLI_ENDS_AT, json_null());
        return 0;
    }
    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/sandboxes/"));
    cli_escape(&target, id);
    if (cli_call(&cli->server, "GET", target.p, NULL, &engine, NULL, err) < 0) {
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        *err = (struct error){0};
    }
    set_end(row, json_object_get(engine, "endAt"));
    return 0;
}
