/* Asking for a build, and looking at one: names, tags and sizes are checked here, before anything is stored. */

#include "base/clock.h"
#include "domain/build/build_internal.h"
#include "domain/template/template.h"
#include "store/core/store_name.h"

enum {
    CPU_MAX = 32,
    MEM_MAX_MB = 1 << 20,
    DISK_MIN_MB = 64,
    DISK_MAX_MB = 1 << 24,
    TAGS_MAX = 32,
    REASON_LINES = 20,
    TEMPLATES_MAX = 10000, /* of a team */
    WAITING_MAX = 256,     /* of a team, asked for within the last hour and not started */
};

#define HOUR_US (INT64_C(3600) * 1000000)

static int check_sizes(const struct build_wanted *wanted, struct error *err)
{
    int64_t cpu = wanted->cpu_count, mem = wanted->mem_mb, disk = wanted->disk_mb;

    if (cpu < 0)
        return error_set(err, ERROR_INVALID, "CPU count must be at least 1");
    if (cpu > 1 && cpu % 2)
        return error_set(err, ERROR_INVALID, "CPU count must be 1 or an even number");
    if (cpu > CPU_MAX)
        return error_set(err, ERROR_INVALID, "CPU count must be at most %d", CPU_MAX);
    if (mem % 2)
        return error_set(err, ERROR_INVALID, "Memory must be divisible by 2");
    if (mem && mem < BUILD_MEM_MIN_MB)
        return error_set(err, ERROR_INVALID, "Memory must be at least %d MiB", BUILD_MEM_MIN_MB);
    if (mem > MEM_MAX_MB)
        return error_set(err, ERROR_INVALID, "Memory must be at most %d MiB", MEM_MAX_MB);
    if (disk && (disk < DISK_MIN_MB || disk > DISK_MAX_MB))
        return error_set(err, ERROR_INVALID, "Disk must be from %d to %d MiB", DISK_MIN_MB,
                         DISK_MAX_MB);
    return 0;
}

/* "name:tag" apart; the team before it must be the caller's. */
static int read_name(struct builds *all, const struct build_wanted *wanted, struct arena *arena,
                     struct store_name *out, struct str *out_slug, struct error *err)
{
    struct str text = wanted->name;

    if (!store_name_parse(text, arena, out))
        return error_set(err, ERROR_INVALID,
                         "invalid template name '%.*s': names are made of letters, digits, '-' and "
                         "'_', tags also of '.'",
                         (int)(text.len < 100 ? text.len : 100), text.p ? text.p : "");
    if (store_team_slug(all->config.store, wanted->team_id, arena, out_slug, err) < 0)
        return -1;
    if (out->team.p && !str_eq(out->team, *out_slug) && !str_eq(out->team, wanted->team_id))
        return error_set(err, ERROR_FORBIDDEN, "'%.*s' is not your team", STR_ARG(out->team));
    return 0;
}

static int read_tags(const struct build_wanted *wanted, const struct store_name *name,
                     struct arena *arena, struct build_made *out, struct error *err)
{
    struct str *tags = arena_alloc(arena, (wanted->tag_count + 2) * sizeof(*tags));
    size_t count = 0;

    if (wanted->tag_count > TAGS_MAX)
        return error_set(err, ERROR_INVALID, "at most %d tags", TAGS_MAX);
    if (name->tag_given)
        tags[count++] = name->tag;
    for (size_t i = 0; i < wanted->tag_count; i++) {
        bool known = false;

        if (template_tag_check(wanted->tags[i], arena, &tags[count], err) < 0)
            return -1;
        for (size_t k = 0; k < count; k++)
            known |= str_eq(tags[k], tags[count]);
        count += !known;
    }
    if (count == 0)
        tags[count++] = STR("default");
    out->tags = tags;
    out->tag_count = count;
    return 0;
}

static struct str join(const struct str *tags, size_t count, struct arena *arena)
{
    auto_buf struct buf text = {0};

    buf_init(&text, (size_t)(TAGS_MAX + 1) * (STORE_NAME_MAX + 1));
    for (size_t i = 0; i < count; i++)
        (void)buf_printf(&text, "%s%.*s", i ? "," : "", STR_ARG(tags[i]));
    return arena_str(arena, buf_str(&text));
}

/* What a template has that was never built, and nobody said otherwise. */
static int fill_sizes(struct builds *all, struct store_build *build, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template base;

    if (build->cpu_count && build->mem_mb && build->disk_mb)
        return 0;
    if (template_find(all->config.store, build->team_id, STR(TEMPLATE_BASE_ALIAS), &arena, &base,
                      err) < 0)
        return -1;
    if (!build->cpu_count)
        build->cpu_count = base.cpu_count;
    if (!build->mem_mb)
        build->mem_mb = base.mem_mb;
    if (!build->disk_mb)
        build->disk_mb = base.disk_mb;
    return 0;
}

static bool known_template(struct builds *all, struct str team_id, struct str name)
{
    auto_arena struct arena arena = {0};
    struct store_template row;
    struct error ignored;

    return store_template_get(all->config.store, team_id, name, &arena, &row, &ignored) == 0 &&
           str_eq(row.team_id, team_id);
}

/* What was asked for and never started is an error one day; until then it must not fill the store. */
static int check_counts(struct builds *all, struct str team_id, bool known, struct error *err)
{
    struct store_build_counts counts;

    if (store_build_count(all->config.store, team_id, clock_wall_us() - HOUR_US, &counts, err) < 0)
        return -1;
    if (counts.waiting >= WAITING_MAX)
        return error_set(err, ERROR_QUOTA,
                         "your team has %d builds that were asked for and not "
                         "started: start or cancel them",
                         WAITING_MAX);
    if (!known && counts.templates >= TEMPLATES_MAX)
        return error_set(err, ERROR_QUOTA, "your team has %d templates: delete some",
                         TEMPLATES_MAX);
    return 0;
}

int build_new(struct builds *all, const struct build_wanted *wanted, struct arena *arena,
              struct build_made *out, struct error *err)
{
    struct store_template template = {0};
    struct store_name name;
    char id[UUID_SIZE];
    struct str slug;
    struct store_build build;
    bool known;

    *out = (struct build_made){0};
    if (check_sizes(wanted, err) < 0 || read_name(all, wanted, arena, &name, &slug, err) < 0 ||
        read_tags(wanted, &name, arena, out, err) < 0)
        return -1;
    id_uuid(id);
    build = (struct store_build){.id = arena_str(arena, str_of(id)),
                                 .team_id = wanted->team_id,
                                 .state = STORE_BUILD_WAITING,
                                 .tags = join(out->tags, out->tag_count, arena),
                                 .env = STR("{}"),
                                 .cpu_count = wanted->cpu_count,
                                 .mem_mb = wanted->mem_mb,
                                 .disk_mb = wanted->disk_mb,
                                 .created_at_us = clock_wall_us()};
    known = known_template(all, wanted->team_id, name.name);
    if (check_counts(all, wanted->team_id, known, err) < 0 ||
        (!known && fill_sizes(all, &build, err) < 0))
        return -1;
    if (store_build_add(all->config.store, &build, name.name, arena, &template, err) < 0)
        return -1;
    out->template_id = template.id;
    out->build_id = build.id;
    out->is_public = template.is_public;
    out->alias = template.name;
    out->full_name =
        str_of(arena_printf(arena, "%.*s/%.*s", STR_ARG(slug), STR_ARG(template.name)));
    return 0;
}

/* ---- looking ---- */

int build_get(struct builds *all, struct str team_id, struct str template_id, struct str build_id,
              struct arena *arena, struct store_build *out, struct error *err)
{
    if (!id_is_uuid(build_id))
        return error_set(err, ERROR_INVALID, "Invalid build ID");
    if (store_build_get(all->config.store, team_id, build_id, arena, out, err) < 0)
        return -1;
    if (template_id.p && !str_eq(out->template_id, template_id))
        return error_set(err, ERROR_NOT_FOUND, "build '%.*s' not found", STR_ARG(build_id));
    return 0;
}

static void reverse(struct store_build_log *lines, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        struct store_build_log line = lines[i];

        lines[i] = lines[count - 1 - i];
        lines[count - 1 - i] = line;
    }
}

int build_reason_logs(struct builds *all, const struct store_build *build, struct arena *arena,
                      struct store_build_log **out, size_t *out_count, struct error *err)
{
    const struct store_build_log_query wanted = {
        .build_id = build->id, .step = build->reason_step, .backward = true, .limit = REASON_LINES};

    *out = NULL;
    *out_count = 0;
    if (build->state != STORE_BUILD_ERROR || !build->reason_step.len)
        return 0;
    if (store_build_log_page(all->config.store, &wanted, arena, out, out_count, err) < 0)
        return -1;
    reverse(*out, *out_count);
    return 0;
}

int build_logs(struct builds *all, const struct build_log_query *wanted, struct arena *arena,
               struct store_build_log **out, size_t *out_count, struct error *err)
{
    const struct store_build_log_query query = {
        .build_id = wanted->build_id,
        .from_us = wanted->backward ? 0 : wanted->cursor_us,
        .to_us = wanted->backward ? wanted->cursor_us : 0,
        .level = wanted->level,
        .offset = wanted->offset,
        .backward = wanted->backward,
        .limit = wanted->limit && wanted->limit < BUILD_LOGS_MAX ? wanted->limit : BUILD_LOGS_MAX,
    };

    return store_build_log_page(all->config.store, &query, arena, out, out_count, err);
}
