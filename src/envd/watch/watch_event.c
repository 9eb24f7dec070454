#include "envd/watch/watch_event.h"

#include "base/clock.h"
#include "envd/files/entry.h"
#include "protocol/json/json_out.h"

enum { NAMES_KEPT_MS = 1000 };

static const char *const type_names[] = {
    [WATCH_CREATE] = "EVENT_TYPE_CREATE", [WATCH_RENAME] = "EVENT_TYPE_RENAME",
    [WATCH_CHMOD] = "EVENT_TYPE_CHMOD",   [WATCH_WRITE] = "EVENT_TYPE_WRITE",
    [WATCH_REMOVE] = "EVENT_TYPE_REMOVE",
};

void watch_view_init(struct watch_view *view, const struct watch_request *request)
{
    *view = (struct watch_view){.include_entry = request->include_entry};
    (void)str_copy(str_of(request->path), view->path, sizeof(view->path));
    buf_init(&view->entry, WATCH_EVENT_MAX);
}

void watch_view_done(struct watch_view *view)
{
    user_names_done(&view->names);
    buf_done(&view->entry);
}

static void refresh_names(struct watch_view *view)
{
    int64_t now = clock_mono_ms();

    if (view->names_at_ms != 0 && now - view->names_at_ms < NAMES_KEPT_MS)
        return;
    user_names_done(&view->names);
    user_names_load(&view->names);
    view->names_at_ms = now;
}

/* True when view->entry holds it. */
static bool make_entry(struct watch_view *view, enum watch_op op, const char *name)
{
    const char *slash = strcmp(view->path, "/") == 0 ? "" : "/";
    char path[PATH_MAX];
    struct error err;
    int len;

    if (!view->include_entry || op == WATCH_REMOVE || op == WATCH_RENAME)
        return false;
    if (strcmp(name, ".") == 0)
        len = snprintf(path, sizeof(path), "%s", view->path);
    else
        len = snprintf(path, sizeof(path), "%s%s%s", view->path, slash, name);
    if (len < 0 || (size_t)len >= sizeof(path))
        return false;
    refresh_names(view);
    buf_clear(&view->entry);
    return entry_add(&view->entry, path, str_of(path), &view->names, NULL, &err) == 0;
}

void watch_view_add(struct watch_view *view, struct buf *out, enum watch_op op, const char *name)
{
    json_out_open(out, NULL, '{');
    json_out_str(out, "name", str_of(name));
    json_out_str(out, "type", str_of(type_names[op]));
    if (make_entry(view, op, name))
        json_out_raw(out, "entry", buf_str(&view->entry));
    json_out_close(out, "}");
}
