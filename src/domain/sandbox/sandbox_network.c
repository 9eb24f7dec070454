/* The internet of a running sandbox, on or off. The row first: it is what a later boot goes by. */
#include "base/log.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"

int sandbox_set_internet(struct sandboxes *all, struct str team_id, struct str id, bool internet,
                         struct error *err)
{
    auto_arena struct arena arena = {0};
    struct error ignored = {0};
    struct store_sandbox row;
    struct box_spec spec;

    if (table_check_runs(all, team_id, id, err) < 0 ||
        store_sandbox_get(all->store, id, &arena, &row, err) < 0 ||
        spec_from_row(all, &row, &spec, err) < 0 ||
        store_sandbox_set_internet(all->store, id, internet, true, err) < 0)
        return -1;
    if (all->engine->ops->limit(all->engine, row.id.p, &spec.limits, internet, err) == 0) {
        history_network(all, id, internet);
        return 0;
    }
    if (store_sandbox_set_internet(all->store, id, row.internet, row.internet_given, &ignored) < 0)
        log_warn("sandbox", "id=%s: %s, ignoring", row.id.p, ignored.message);
    /* It may have been paused or ended in between. */
    if (table_check_runs(all, team_id, id, &ignored) < 0)
        *err = ignored;
    return -1;
}
