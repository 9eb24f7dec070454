/* Boxes and layers that are kept although the store does not know them, because the server started with a copy of the
 * store, or with a new one: see store_aside.c. They do not run, count against no limit and stay until an operator removes
 * their lines from the list beside the store; the next start deletes them then, as any leftover. */
#include "domain/sandbox/sandbox_aside.h"

#include "base/log.h"

int aside_open(struct aside *aside, struct store *store, struct error *err)
{
    struct str rest, line;

    *aside = (struct aside){.store = store};
    map_init(&aside->listed);
    buf_init(&aside->text, ASIDE_TEXT_MAX);
    if (store_is_strange(store, &aside->strange, err) < 0 ||
        store_aside_read(store, &aside->arena, &aside->before, err) < 0)
        return -1;
    for (rest = aside->before; rest.len;) {
        line = str_split(&rest, '\n');
        if (line.len)
            (void)map_put(&aside->listed, line, aside);
    }
    return 0;
}

void aside_done(struct aside *aside)
{
    map_done(&aside->listed);
    buf_done(&aside->text);
    arena_done(&aside->arena);
}

bool aside_keeps(struct aside *aside, const char *kind, const char *name)
{
    char line[64];

    (void)snprintf(line, sizeof(line), "%s %s", kind, name);
    if (!aside->strange && !map_get(&aside->listed, str_of(line)))
        return false;
    (void)buf_printf(&aside->text, "%s\n", line);
    log_warn("sandbox",
             "kept %s: the store does not know it, as a copy or a new store was put in its place; "
             "to delete it, remove its line from '" STORE_ASIDE
             "' beside the store and start again",
             line);
    return true;
}

int aside_save(struct aside *aside, struct error *err)
{
    if (aside->text.overflowed)
        return error_set(err, ERROR_LIMIT, "the store does not know too much to list it");
    if (!str_eq(buf_str(&aside->text), aside->before) &&
        store_aside_write(aside->store, buf_str(&aside->text), err) < 0)
        return -1;
    return aside->strange ? store_is_familiar(aside->store, err) : 0;
}
