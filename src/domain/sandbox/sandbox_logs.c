/* Lines of the network (sandbox_egress.c), and those that envd of a running sandbox remembers (programs started and
 * ended, and its own): they are put between the events of the store when somebody reads the logs. Those of envd come from
 * inside the sandbox, where nothing can be trusted: bounded in number, size and time; what is not
 * as expected is left out; and none is older than the sandbox or from the future. They are gone with
 * envd. */
#include <stdlib.h>

#include "base/clock.h"
#include "domain/network/network_log.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_table.h"
#include "protocol/json/json_shape.h"

enum { LINES_MAX = 1000, MESSAGE_MAX = 1024, DETAIL_MAX = 64 };

struct line {
    int64_t at_us, level;
    struct str type, message, detail;
};

static const struct json_field line_fields[] = {
    JSON_FIELD(struct line, at_us, "at", JSON_REQUIRED),
    JSON_FIELD(struct line, level, "level", JSON_REQUIRED),
    JSON_FIELD(struct line, type, "type", JSON_REQUIRED),
    JSON_FIELD(struct line, message, "message", JSON_REQUIRED),
    JSON_FIELD(struct line, detail, "detail", 0),
    JSON_END,
};

static bool read_line(const json_t *json, const struct store_sandbox *row, int64_t now,
                      struct arena *arena, struct store_event *out)
{
    struct error ignored = {0};
    struct line line = {0};

    if (json_read(line_fields, json, &line, &ignored) < 0 || line.message.len > MESSAGE_MAX ||
        line.detail.len > DETAIL_MAX)
        return false;
    *out = (struct store_event){
        .type = str_is(line.type, "exec") ? STR("exec") : STR("envd"),
        .message = arena_str(arena, line.message),
        .detail = arena_str(arena, line.detail),
        .level = line.level >= STORE_LEVEL_DEBUG && line.level <= STORE_LEVEL_ERROR
                     ? line.level
                     : STORE_LEVEL_INFO,
        .at_us = line.at_us < row->started_at_us ? row->started_at_us
                 : line.at_us > now              ? now
                                                 : line.at_us,
        .sandbox_id = row->id,
        .team_id = row->team_id,
    };
    return true;
}

static int compare(const void *a, const void *b)
{
    int64_t x = ((const struct store_event *)a)->at_us, y = ((const struct store_event *)b)->at_us;

    return (x > y) - (x < y);
}

static size_t fetch(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                    struct store_event *out)
{
    auto_buf struct buf text = {0};
    auto_json json_t *array = NULL;
    struct error ignored = {0};
    struct store_sandbox row;
    size_t count = 0, i;
    const json_t *json;

    if (table_check_runs(all, filter->team_id, filter->sandbox_id, &ignored) < 0 ||
        store_sandbox_get(all->store, filter->sandbox_id, arena, &row, &ignored) < 0 ||
        envd_journal(all->engine, row.id.p, row.access_token, &text, &ignored) < 0 ||
        json_parse(buf_str(&text), &array, &ignored) < 0)
        return 0;
    json_array_foreach (array, i, json)
        if (count < LINES_MAX && read_line(json, &row, clock_wall_us(), arena, &out[count]))
            count++;
    return count;
}

void logs_merge(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                struct event_page *page)
{
    struct store_event *lines =
        arena_alloc(arena, (LINES_MAX + NETWORK_LOG_LINES) * sizeof(*lines));
    struct store_event *merged = arena_alloc(arena, filter->limit * sizeof(*merged));
    size_t count = fetch(all, filter, arena, lines), event = 0, line = 0, n = 0;

    count += egress_lines(all, filter, arena, lines + count);
    qsort(lines, count, sizeof(*lines), compare);
    while (n < filter->limit && (event < page->count || line < count)) {
        const struct store_event *next = &lines[filter->ascending ? line : count - 1 - line];

        if (line < count && !history_matches(filter, next)) {
            line++;
            continue;
        }
        if (line == count ||
            (event < page->count && (filter->ascending ? page->items[event].at_us <= next->at_us
                                                       : page->items[event].at_us > next->at_us))) {
            merged[n++] = page->items[event++];
        } else {
            merged[n++] = *next;
            line++;
        }
    }
    page->items = merged;
    page->count = n;
}
