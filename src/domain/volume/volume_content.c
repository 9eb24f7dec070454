/* The content of volumes, for the API. Files in a volume have the ids they have inside sandboxes, and
 * only inside a sandbox's namespaces can anybody without privileges read, write and own them all. So
 * the content of a volume is served from a box of its own: nothing but an envd that was told to
 * serve the volume and nothing else. It is started by the first request, found by the others through
 * its route (by the volume's token), and ended when nobody asked for a while.
 *
 * It has no row and no entry in the table: after a crash it is a leftover and removed.
 *
 * An entry of the map is STARTING and owned by the thread that made it, or READY. Who wants to end a
 * volume's box waits until it is not STARTING. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/cond.h"
#include "base/log.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"
#include "domain/volume/volume_internal.h"
#include "protocol/json/json_out.h"

enum {
    CONTENT_MAX = 64,  /* boxes at once */
    CONTENT_TEAM = 16, /* of them, for one team */
    CONTENT_MEM_MB = 256,
    CONTENT_DISK_MB = 16,
    CONTENT_PIDS = 64,
};
#define IDLE_CHECK "/idle?seconds=60"
#define REST_CHECK "/idle?seconds=1" /* when others want its place */

struct content {
    char box_id[ID_SIZE], team_id[TEAM_ID_SIZE];
    bool ready;
};

void content_init(struct volumes *all)
{
    (void)pthread_mutex_init(&all->lock, NULL);
    cond_init(&all->changed);
    map_init(&all->boxes);
}

/* Takes a READY one out of the map; NULL when there is none (any more). */
static struct content *take(struct volumes *all, struct str volume_id)
{
    struct content *content;

    (void)pthread_mutex_lock(&all->lock);
    while ((content = map_get(&all->boxes, volume_id)) && !content->ready)
        (void)pthread_cond_wait(&all->changed, &all->lock);
    if (content)
        (void)map_remove(&all->boxes, volume_id);
    (void)pthread_mutex_unlock(&all->lock);
    return content;
}

/* In the end an entry of the table sees to what cannot be removed now. */
static void end_box(struct volumes *all, const char *box_id)
{
    struct error err = {0};

    routes_remove(all->routes, box_id);
    if (all->engine->ops->kill(all->engine, box_id, &err) == 0)
        return;
    log_warn("sandbox", "box of a volume: %s, trying again", err.message);
    table_condemn(all->sandboxes, box_id, END_CONTENT_IDLE);
}

void content_close(struct volumes *all, struct str volume_id)
{
    struct content *content = take(all, volume_id);

    if (!content)
        return;
    end_box(all, content->box_id);
    free(content);
}

void content_done(struct volumes *all)
{
    struct map_entry *entry;

    while ((entry = map_next(&all->boxes, NULL))) {
        auto_free char *id = xstrndup(entry->key, entry->key_len);

        content_close(all, str_of(id));
    }
    map_done(&all->boxes);
    (void)pthread_mutex_destroy(&all->lock);
    (void)pthread_cond_destroy(&all->changed);
}

bool content_died(void *arg, const char *box_id)
{
    struct volumes *all = arg;
    struct content *found = NULL;
    struct map_entry *entry;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->boxes, entry) {
        struct content *content = entry->value;

        if (content->ready && strcmp(content->box_id, box_id) == 0) {
            found = map_remove(&all->boxes, str_n(entry->key, entry->key_len));
            break;
        }
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (!found)
        return false;
    end_box(all, box_id);
    free(found);
    return true;
}

/* ---- starting ---- */

static int make_spec(struct volumes *all, const struct store_volume *volume, const char *box_id,
                     struct box_spec *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template template;

    /* envd comes with the engine; of the template only its empty directories are used. */
    if (store_template_find(all->store, STR(""), STR("base"), &arena, &template, err) < 0 ||
        spec_from_template(&template, out, err) < 0)
        return -1;
    memcpy(out->id, box_id, ID_SIZE);
    out->network.mode = NETWORK_NONE;
    out->limits = (struct box_limits){.mem_bytes = (uint64_t)CONTENT_MEM_MB << 20,
                                      .disk_bytes = (uint64_t)CONTENT_DISK_MB << 20,
                                      .cpu_count = 1,
                                      .pids_max = CONTENT_PIDS};
    out->volume_count = 1;
    if (!str_copy(volume->id, out->volumes[0].name, LAYER_NAME_SIZE))
        return error_set(err, ERROR_INTERNAL, "bad id of a volume");
    (void)snprintf(out->volumes[0].path, VOLUME_PATH_SIZE, "/volume");
    return 0;
}

static void publish(struct volumes *all, const struct store_volume *volume, const char *box_id)
{
    struct route route = {.state = ROUTE_RUNNING, .volume = true};

    route.generation = route_generation_next(all->sandboxes);
    memcpy(route.id, box_id, ID_SIZE);
    (void)str_copy(volume->token, route.access_token, sizeof(route.access_token));
    routes_set(all->routes, &route);
}

static int start_box(struct volumes *all, const struct store_volume *volume, const char *box_id,
                     struct error *err)
{
    auto_buf struct buf body = {0};
    struct box_spec spec;
    struct box_info info;

    if (make_spec(all, volume, box_id, &spec, err) < 0 ||
        all->engine->ops->start(all->engine, &spec, &info, err) < 0)
        return -1;
    buf_init(&body, 512);
    json_out_open(&body, NULL, '{');
    json_out_str(&body, "accessToken", volume->token);
    json_out_str(&body, "volumeID", volume->id);
    json_out_close(&body, "}");
    if (envd_init(all->engine, box_id, -1, buf_str(&body), err) < 0) {
        end_box(all, box_id);
        return -1;
    }
    publish(all, volume, box_id);
    return 0;
}

static size_t boxes_of(const struct volumes *all, struct str team_id)
{
    struct map_entry *entry;
    size_t count = 0;

    map_for_each (&all->boxes, entry)
        count += str_is(team_id, ((const struct content *)entry->value)->team_id);
    return count;
}

static int check_places(const struct volumes *all, struct str team_id, struct error *err)
{
    if (boxes_of(all, team_id) >= CONTENT_TEAM)
        return error_set(err, ERROR_QUOTA,
                         "the content of %d volumes of your team is in use; try again in a moment",
                         CONTENT_TEAM);
    if (all->boxes.count >= CONTENT_MAX)
        return error_set(err, ERROR_QUOTA,
                         "the content of %d volumes is in use; try again in a moment", CONTENT_MAX);
    return 0;
}

/* 1: another thread has started it meanwhile. 0: the new entry is the caller's. */
static int claim(struct volumes *all, struct str volume_id, struct str team_id,
                 struct content **out, struct error *err)
{
    struct content *content;
    int r = 0;

    (void)pthread_mutex_lock(&all->lock);
    while ((content = map_get(&all->boxes, volume_id)) && !content->ready)
        (void)pthread_cond_wait(&all->changed, &all->lock);
    if (content) {
        r = 1;
    } else if ((r = check_places(all, team_id, err)) == 0) {
        content = xcalloc(1, sizeof(*content));
        (void)str_copy(team_id, content->team_id, sizeof(content->team_id));
        id_make(content->box_id);
        (void)map_put(&all->boxes, volume_id, content);
        *out = content;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

static void settle(struct volumes *all, struct str volume_id, struct content *content, bool ready)
{
    (void)pthread_mutex_lock(&all->lock);
    content->ready = ready;
    if (!ready)
        (void)map_remove(&all->boxes, volume_id);
    (void)pthread_cond_broadcast(&all->changed);
    (void)pthread_mutex_unlock(&all->lock);
    if (!ready)
        free(content);
}

/* ---- ending ---- */

/* Ends those whose envds say yes to the question; of one team, or of all (team_id.p NULL). */
static void end_idle(struct volumes *all, struct str team_id, const char *question)
{
    struct {
        char volume_id[LAYER_NAME_SIZE], box_id[ID_SIZE];
    } found[CONTENT_MAX];
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->boxes, entry) {
        const struct content *content = entry->value;

        if (!content->ready || count == CONTENT_MAX ||
            (team_id.p && !str_is(team_id, content->team_id)) ||
            !str_copy(str_n(entry->key, entry->key_len), found[count].volume_id, LAYER_NAME_SIZE))
            continue;
        memcpy(found[count++].box_id, content->box_id, ID_SIZE);
    }
    (void)pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < count; i++)
        if (envd_ask(all->engine, found[i].box_id, question))
            content_close(all, str_of(found[i].volume_id));
}

void content_reap(void *all)
{
    end_idle(all, STR_NONE, IDLE_CHECK);
}

/* For a team that has its share: of its own. */
static void make_places(struct volumes *all, struct str team_id)
{
    bool has_share;

    (void)pthread_mutex_lock(&all->lock);
    has_share = boxes_of(all, team_id) >= CONTENT_TEAM;
    (void)pthread_mutex_unlock(&all->lock);
    end_idle(all, has_share ? team_id : STR_NONE, REST_CHECK);
}

int content_serve(struct str token, void *arg, struct error *err)
{
    struct volumes *all = arg;
    auto_arena struct arena arena = {0};
    struct content *content = NULL;
    struct store_volume volume;
    int r;

    if (store_volume_by_token(all->store, token, &arena, &volume, err) < 0)
        return -1;
    r = claim(all, volume.id, volume.team_id, &content, err);
    if (r < 0 && err->code == ERROR_QUOTA) {
        make_places(all, volume.team_id);
        r = claim(all, volume.id, volume.team_id, &content, err);
    }
    if (r != 0 || !content)
        return r < 0 ? -1 : 0;
    /* Looked up again: who deletes the volume waits for the entry we have made now. */
    r = store_volume_by_token(all->store, token, &arena, &volume, err);
    if (r == 0)
        r = start_box(all, &volume, content->box_id, err);
    settle(all, volume.id, content, r == 0);
    return r < 0 ? error_prefix(err, "content of a volume") : 0;
}
