#include "domain/template/template.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/id.h"

int template_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct store_template *out, struct error *err)
{
    return store_template_find(store, team_id, name, arena, out, err);
}

int template_list(struct store *store, struct str team_id, struct arena *arena,
                  struct store_template **out, size_t *out_count, struct error *err)
{
    return store_template_list(store, team_id, arena, out, out_count, err);
}

static bool layer_valid(struct str name)
{
    if (name.len < 1 || name.len > 31)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!((name.p[i] >= 'a' && name.p[i] <= 'z') || (name.p[i] >= '0' && name.p[i] <= '9')))
            return false;
    return true;
}

static int check_size(const char *what, int64_t value, int64_t max, struct error *err)
{
    if (value < 1 || value > max)
        return error_set(err, ERROR_INVALID, "base template: %s must be from 1 to %" PRId64, what,
                         max);
    return 0;
}

int template_register_base(struct store *store, const struct template_base *base,
                           struct arena *arena, struct str *out_id, struct error *err)
{
    int64_t now = clock_wall_us();
    char id[ID_SIZE];
    struct store_template template = {
        .team_id = STR(""),
        .alias = STR(TEMPLATE_BASE_ALIAS),
        .layers = base->layer,
        .cpu_count = base->cpu_count ? base->cpu_count : TEMPLATE_BASE_CPU,
        .mem_mb = base->mem_mb ? base->mem_mb : TEMPLATE_BASE_MEM_MB,
        .disk_mb = base->disk_mb ? base->disk_mb : TEMPLATE_BASE_DISK_MB,
        .is_public = true,
        .created_at_us = now,
        .updated_at_us = now,
    };

    if (!layer_valid(base->layer))
        return error_set(err, ERROR_INVALID, "base template: bad layer name '%.*s'",
                         STR_ARG(base->layer));
    if (check_size("cpu count", template.cpu_count, 1024, err) < 0 ||
        check_size("memory (MiB)", template.mem_mb, 1 << 24, err) < 0 ||
        check_size("disk (MiB)", template.disk_mb, 1 << 28, err) < 0)
        return -1;
    id_make(id); /* used only when there is none yet */
    template.id = str_of(id);
    return store_template_put(store, &template, arena, out_id, err);
}
