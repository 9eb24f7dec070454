/* A team's limit of disk: what its sandboxes may write (paused ones too), what its volumes may hold, and what its
 * snapshots, builds, uploaded files, browser notes and extensions hold. A snapshot counts with all that its sandbox had, also where it shares blocks with another one:
 * that one may go, and the blocks stay. */
#include "domain/sandbox/sandbox_room.h"
#include "base/size.h"
#include "domain/account/team.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"
#include "store/platform/store_layer.h"

void room_init(struct sandboxes *all)
{
    (void)pthread_mutex_init(&all->room_lock, NULL);
}

void room_done(struct sandboxes *all)
{
    (void)pthread_mutex_destroy(&all->room_lock);
}

static int64_t to_mb(int64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

static int kept_mb(struct sandboxes *all, struct str team_id, int64_t *out_mb, struct error *err)
{
    struct store_kept kept = {0};

    if (store_team_kept(all->store, team_id, &kept, err) < 0)
        return -1;
    *out_mb = kept.volumes * to_mb((int64_t)all->volume_bytes) +
              to_mb(kept.layer_bytes + kept.file_bytes);
    return 0;
}

int room_kept(struct sandboxes *all, struct str team_id, const struct store_limits *limits,
              int64_t *out_mb, struct error *err)
{
    *out_mb = 0;
    return limits->disk_mb ? kept_mb(all, team_id, out_mb, err) : 0;
}

int sandboxes_team_use(struct sandboxes *all, struct str team_id, struct store_limits *out,
                       struct error *err)
{
    int64_t kept = 0;

    if (kept_mb(all, team_id, &kept, err) < 0)
        return -1;
    table_team_use(all, team_id, out);
    out->disk_mb += kept;
    return 0;
}

int sandboxes_disk_of(void *arg, struct str team_id, struct spool_disk *out, struct error *err)
{
    struct sandboxes *all = arg;
    struct store_limits limits = {0};
    int64_t kept;

    if (team_limits(all->store, team_id, &limits, err) < 0 ||
        room_kept(all, team_id, &limits, &kept, err) < 0)
        return -1;
    *out = (struct spool_disk){.limit_bytes = limits.disk_mb << 20,
                               .kept_bytes = (table_disk_mb(all, team_id) + kept) << 20};
    return 0;
}

static int check(struct sandboxes *all, struct str team_id, int64_t bytes, struct error *err)
{
    struct store_limits limits = {0};
    char text[SIZE_TEXT];
    int64_t kept;

    if (team_limits(all->store, team_id, &limits, err) < 0 ||
        room_kept(all, team_id, &limits, &kept, err) < 0)
        return -1;
    if (limits.disk_mb && table_disk_mb(all, team_id) + kept + to_mb(bytes) > limits.disk_mb)
        return error_set(err, ERROR_QUOTA,
                         "your team's limit of %s of disk is reached: delete sandboxes, snapshots, "
                         "volumes or templates, or ask the operator to raise maxDiskMB",
                         size_text((uint64_t)limits.disk_mb << 20, text));
    return 0;
}

int room_take(struct sandboxes *all, struct str team_id, int64_t bytes, struct error *err)
{
    int r;

    (void)pthread_mutex_lock(&all->room_lock);
    r = check(all, team_id, bytes, err);
    if (r < 0)
        (void)pthread_mutex_unlock(&all->room_lock);
    return r;
}

void room_taken(struct sandboxes *all)
{
    (void)pthread_mutex_unlock(&all->room_lock);
}

uint64_t room_volume_bytes(const struct sandboxes *all)
{
    return all->volume_bytes;
}
