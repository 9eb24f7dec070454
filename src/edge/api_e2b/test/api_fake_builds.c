/* Templates and builds in memory: "base" of the platform, "mine" of team-1 (two builds), "theirs" of team-2, public. */
#include <sys/mman.h>
#include <unistd.h>

#include "domain/build/build.h"
#include "domain/sandbox/sandbox_setup.h"
#include "domain/secret/registry_login.h"
#include "domain/template/template.h"
#include "edge/api_e2b/test/api_fake.h"
#include "store/platform/store_registry.h"

#define READY API_FAKE_BUILD "1"

static int failing(struct error *err)
{
    if (!api_fake.fail.code)
        return 0;
    *err = api_fake.fail;
    return -1;
}

static int not_found(struct str name, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "template '%.*s' not found", STR_ARG(name));
}

enum { ROWS = 3 };

static struct store_template row_of(size_t i)
{
    const struct store_template rows[ROWS] = {
        {.id = STR("t1"),
         .team_id = STR(""),
         .alias = STR("base"),
         .cpu_count = 2,
         .mem_mb = 512,
         .is_public = true,
         .created_at_us = 1000000,
         .updated_at_us = 1000000},
        {.id = STR("t2"),
         .team_id = STR("team-1"),
         .name = STR("mine"),
         .build_id = STR(READY),
         .cpu_count = 4,
         .mem_mb = 1024,
         .created_at_us = 2000000,
         .updated_at_us = 3000000,
         .spawn_count = 7,
         .last_spawned_at_us = 4000000},
        {.id = STR("t3"),
         .team_id = STR("team-2"),
         .name = STR("theirs"),
         .is_public = true,
         .created_at_us = 3000000},
    };

    return rows[i];
}

static bool find_row(struct str name, struct store_template *out)
{
    struct str rest = name, base = str_split(&rest, ':');

    for (size_t i = 0; i < ROWS; i++) {
        *out = row_of(i);
        if (str_eq(base, out->id) || (out->alias.len && str_eq(base, out->alias)) ||
            (out->name.len && str_eq(base, out->name)))
            return true;
    }
    return false;
}

/* ERROR_FORBIDDEN when it is there, and somebody else's. */
static int check_own(struct str name, struct error *err)
{
    struct store_template row;

    if (!find_row(name, &row))
        return not_found(name, err);
    return str_is(row.team_id, "team-1")
               ? 0
               : error_set(err, ERROR_FORBIDDEN, "template '%.*s' is not yours", STR_ARG(name));
}

int store_template_get(struct store *store, struct str team_id, struct str text,
                       struct arena *arena, struct store_template *out, struct error *err)
{
    (void)store, (void)team_id, (void)arena;
    return find_row(text, out) ? 0 : not_found(text, err);
}

int template_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct store_template *out, struct error *err)
{
    struct str rest = name;

    (void)str_split(&rest, ':');
    if (rest.len && !str_is(rest, "default"))
        return not_found(name, err);
    return store_template_get(store, team_id, name, arena, out, err);
}

static struct template_view view_of(struct store_template row)
{
    return (struct template_view){.row = row,
                                  .build_status = STR("ready"),
                                  .build_count = row.build_id.len ? 2 : 1,
                                  .full_name = row.team_id.len ? STR("team/mine") : STR("")};
}

int template_views(struct store *store, struct str team_id, struct arena *arena,
                   struct template_view **out, size_t *out_count, struct error *err)
{
    (void)store, (void)team_id;
    if (failing(err) < 0)
        return -1;
    *out = arena_alloc(arena, ROWS * sizeof(**out));
    for (size_t i = 0; i < ROWS; i++)
        (*out)[i] = view_of(row_of(i));
    *out_count = ROWS;
    return 0;
}

int template_view(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_view *out, struct error *err)
{
    return check_own(name, err) < 0 ? -1 : template_look(store, team_id, name, arena, out, err);
}

int template_look(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_view *out, struct error *err)
{
    struct store_template row;

    if (store_template_get(store, team_id, name, arena, &row, err) < 0)
        return -1;
    *out = view_of(row);
    return 0;
}

static struct store_build build_of(char last)
{
    static char id[] = API_FAKE_BUILD "1", other[] = API_FAKE_BUILD "2";

    return (struct store_build){
        .id = str_of(last == '1' ? id : other),
        .template_id = STR("t2"),
        .state = last == '1' ? STORE_BUILD_READY : api_fake.build_state,
        .reason = last == '2' ? STR("it broke") : STR(""),
        .reason_step = last == '2' ? STR("3") : STR(""),
        .cpu_count = 4,
        .mem_mb = 1024,
        .disk_mb = 10240,
        .created_at_us = last == '1' ? 2000000 : 3000000,
        .finished_at_us = last == '1' ? 2500000 : 0,
    };
}

int template_builds(struct store *store, const struct store_build_query *wanted,
                    struct arena *arena, struct store_build **out, size_t *out_count,
                    struct error *err)
{
    size_t count = 0;

    (void)store, (void)err;
    *out = arena_alloc(arena, 2 * sizeof(**out));
    for (char last = '2'; last >= '1' && count < wanted->limit; last--) {
        struct store_build build = build_of(last);

        if (!wanted->before_us || build.created_at_us < wanted->before_us)
            (*out)[count++] = build;
    }
    *out_count = count;
    return 0;
}

int template_set_public(struct store *store, struct str team_id, struct str name, bool is_public,
                        struct error *err)
{
    (void)store, (void)team_id;
    if (check_own(name, err) < 0)
        return -1;
    api_fake.made_public = is_public;
    return 0;
}

int template_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err)
{
    (void)all, (void)team_id;
    if (check_own(name, err) < 0)
        return -1;
    api_fake.template_deleted = true;
    return 0;
}

int template_tags_assign(struct sandboxes *all, struct str team_id, struct str target,
                         const struct str *tags, size_t count, struct arena *arena,
                         struct str *out_build_id, struct error *err)
{
    (void)all, (void)team_id, (void)arena;
    if (check_own(target, err) < 0)
        return -1;
    api_fake.tag_count = count;
    (void)str_copy(tags[0], api_fake.tag, sizeof(api_fake.tag));
    *out_build_id = STR(READY);
    return 0;
}

int template_tags_delete(struct sandboxes *all, struct str team_id, struct str name,
                         const struct str *tags, size_t count, struct error *err)
{
    (void)all, (void)team_id;
    if (check_own(name, err) < 0)
        return -1;
    if (str_is(tags[0], "default"))
        return error_set(err, ERROR_INVALID, "tag 'default' cannot be deleted");
    api_fake.tag_count = count;
    return 0;
}

int template_tags(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_tag **out, size_t *out_count, struct error *err)
{
    struct store_template row;

    if (store_template_get(store, team_id, name, arena, &row, err) < 0)
        return -1;
    *out = arena_alloc(arena, sizeof(**out));
    **out = (struct template_tag){STR("default"), STR(READY), 2000000};
    *out_count = 1;
    return 0;
}

const char *store_build_state_name(enum store_build_state state)
{
    static const char *const names[] = {"waiting", "building", "ready", "error"};

    return names[state];
}

int build_new(struct builds *all, const struct build_wanted *wanted, struct arena *arena,
              struct build_made *out, struct error *err)
{
    (void)all;
    if (failing(err) < 0)
        return -1;
    (void)str_copy(wanted->name, api_fake.template_name, sizeof(api_fake.template_name));
    api_fake.cpu_count = wanted->cpu_count;
    api_fake.mem_mb = wanted->mem_mb;
    api_fake.disk_mb = wanted->disk_mb;
    api_fake.tag_count = wanted->tag_count;
    *out = (struct build_made){.template_id = STR("t2"),
                               .build_id = STR(API_FAKE_BUILD "2"),
                               .alias = STR("mine"),
                               .full_name = STR("team/mine"),
                               .tags = wanted->tags,
                               .tag_count = wanted->tag_count};
    (void)arena;
    return 0;
}

static bool is_build(struct str id)
{
    return str_is(id, READY) || str_is(id, API_FAKE_BUILD "2");
}

static int check_build(struct str id, struct error *err)
{
    return is_build(id) ? 0
                        : error_set(err, ERROR_NOT_FOUND, "build '%.*s' not found", STR_ARG(id));
}

int build_start(struct builds *all, struct str team_id, struct str template_id, struct str build_id,
                struct str recipe, struct error *err)
{
    (void)all, (void)team_id, (void)template_id;
    if (check_build(build_id, err) < 0 || failing(err) < 0)
        return -1;
    (void)str_copy(recipe, api_fake.recipe, sizeof(api_fake.recipe));
    api_fake.build_state = STORE_BUILD_BUILDING;
    return 0;
}

int build_cancel(struct builds *all, struct str team_id, struct str template_id,
                 struct str build_id, struct error *err)
{
    (void)all, (void)team_id, (void)template_id;
    if (check_build(build_id, err) < 0)
        return -1;
    if (str_is(build_id, READY))
        return error_set(err, ERROR_CONFLICT, "the build has ended");
    api_fake.build_state = STORE_BUILD_ERROR;
    return 0;
}

int build_get(struct builds *all, struct str team_id, struct str template_id, struct str build_id,
              struct arena *arena, struct store_build *out, struct error *err)
{
    (void)all, (void)team_id, (void)template_id, (void)arena;
    if (check_build(build_id, err) < 0)
        return -1;
    *out = build_of(build_id.p[build_id.len - 1]);
    return 0;
}

static void one_log(const char *message, struct arena *arena, struct store_build_log **out)
{
    *out = arena_alloc(arena, sizeof(**out));
    **out = (struct store_build_log){.at_us = 1767225600123456,
                                     .level = STORE_LEVEL_WARN,
                                     .step = STR("3"),
                                     .message = str_of(message)};
}

int build_reason_logs(struct builds *all, const struct store_build *build, struct arena *arena,
                      struct store_build_log **out, size_t *out_count, struct error *err)
{
    (void)all, (void)build, (void)err;
    one_log("not there", arena, out);
    *out_count = 1;
    return 0;
}

int build_logs(struct builds *all, const struct build_log_query *wanted, struct arena *arena,
               struct store_build_log **out, size_t *out_count, struct error *err)
{
    (void)all, (void)err;
    api_fake.logs = *wanted;
    one_log("RUN make", arena, out);
    *out_count = 1;
    return 0;
}

int build_file_find(struct builds *all, struct str team_id, struct str hash, bool *out_present,
                    struct error *err)
{
    (void)all, (void)team_id, (void)hash, (void)err;
    *out_present = api_fake.file_length > 0;
    return 0;
}

int build_file_add(struct builds *all, struct str team_id, struct str hash, int fd, int64_t length,
                   struct error *err)
{
    (void)all, (void)hash, (void)err;
    (void)str_copy(team_id, api_fake.file_team, sizeof(api_fake.file_team));
    if (fd >= 0)
        api_fake.file_length = lseek(fd, 0, SEEK_END);
    return length < 0 || length == api_fake.file_length
               ? 0
               : error_set(err, ERROR_INVALID, "another length");
}

/* ---- passwords for registries: tested with the real ones, in secret_test.c ---- */

int store_registry_list(struct store *store, struct str team_id, struct arena *arena,
                        struct store_registry **out, size_t *out_count, struct error *err)
{
    (void)store, (void)err;
    *out = arena_alloc(arena, sizeof(**out));
    **out = (struct store_registry){team_id, STR("ghcr.io"), STR("me"), STR("00ff"), 1000000};
    *out_count = 1;
    return 0;
}

int registry_login_put(struct store *store, const struct secrets *secrets, struct str team_id,
                       const struct registry_login *login, struct error *err)
{
    (void)store, (void)secrets, (void)team_id;
    if (failing(err) < 0)
        return -1;
    (void)str_copy(login->password, api_fake.password, sizeof(api_fake.password));
    return 0;
}

int registry_login_delete(struct store *store, struct str team_id, struct str host,
                          struct error *err)
{
    (void)store, (void)team_id;
    return str_is(host, "ghcr.io") ? 0 : error_set(err, ERROR_NOT_FOUND, "there is none");
}

int build_export(struct builds *all, struct str team_id, struct str name,
                 const struct cancel *cancel, int *out_fd, int64_t *out_bytes,
                 struct spool_charge *out_charge, struct error *err)
{
    (void)all, (void)team_id, (void)name, (void)cancel, (void)out_charge;
    *out_fd = memfd_create("layer", MFD_CLOEXEC);
    *out_bytes = 5;
    return write(*out_fd, "layer", 5) == 5 ? 0 : error_set(err, ERROR_INTERNAL, "memfd");
}

void setup_of_template(const struct store_template *template, struct arena *arena,
                       struct setup *out)
{
    (void)template, (void)arena;
    *out = (struct setup){.env = STR("{\"A\":\"b\"}"), .user = STR("app"), .start = STR("run")};
}
