#include "base/spool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/map.h"

#define MIB ((int64_t)1 << 20)

/* The disk pool of the sandboxes keeps 256 MiB of the host's disk free and grows by chunks of as much; temporary files
 * leave room for both. A small disk has less to leave. */
#define LEAVE_FREE (512 * MIB)
enum {
    LEAVE_FREE_PART = 8,
    STEP_MIN = 64 * 1024,
    STEP_MAX = 16 << 20,
    STEP_PART = 8, /* of what the charge holds */
};

struct spool {
    struct spool_config config;
    char *directory;
    pthread_mutex_t lock; /* guards what follows, and `used` and `held` of all charges */
    struct map teams;     /* int64_t *, bytes held */
    int64_t held;
};

struct spool *spool_new(const struct spool_config *config)
{
    struct spool *spool = xcalloc(1, sizeof(*spool));

    spool->config = *config;
    spool->directory = xstrdup(config->directory);
    (void)pthread_mutex_init(&spool->lock, NULL);
    map_init(&spool->teams);
    return spool;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    map_done(&spool->teams);
    (void)pthread_mutex_destroy(&spool->lock);
    free(spool->directory);
    free(spool);
}

int64_t spool_held(struct spool *spool)
{
    int64_t held;

    if (!spool)
        return 0;
    (void)pthread_mutex_lock(&spool->lock);
    held = spool->held;
    (void)pthread_mutex_unlock(&spool->lock);
    return held;
}

void spool_charge_open(struct spool_charge *charge, struct spool *spool, struct str team_id)
{
    *charge = (struct spool_charge){.spool = spool};
    if (!str_copy(team_id, charge->team_id, sizeof(charge->team_id)))
        abort(); /* ids of teams are ours, and shorter */
}

/* With the lock held. */
static void team_hold(struct spool *spool, struct str team_id, int64_t bytes)
{
    int64_t *held = map_get(&spool->teams, team_id);

    if (!held) {
        held = xcalloc(1, sizeof(*held));
        (void)map_put(&spool->teams, team_id, held);
    }
    *held += bytes;
    spool->held += bytes;
    if (!*held)
        free(map_remove(&spool->teams, team_id));
}

/* ---- limits ---- */

struct limits {
    struct spool_disk disk;
    int64_t room; /* bytes of the file system that temporary files may still take */
};

static int look_at_disk(const struct spool *spool, int64_t *out_room, struct error *err)
{
    struct statvfs fs;
    int64_t leave, total, available;

    if (statvfs(spool->directory, &fs) < 0)
        return error_set_errno(err, errno, "free space of '%s'", spool->directory);
    total = (int64_t)(fs.f_blocks * fs.f_frsize);
    available = (int64_t)(fs.f_bavail * fs.f_frsize);
    leave = total / LEAVE_FREE_PART < LEAVE_FREE ? total / LEAVE_FREE_PART : LEAVE_FREE;
    *out_room = available > leave ? available - leave : 0;
    return 0;
}

static int look(const struct spool_charge *charge, struct limits *out, struct error *err)
{
    const struct spool *spool = charge->spool;

    *out = (struct limits){0};
    if (spool->config.disk_of &&
        spool->config.disk_of(spool->config.arg, str_of(charge->team_id), &out->disk, err) < 0)
        return -1;
    return look_at_disk(spool, &out->room, err);
}

static long long to_mb(int64_t bytes)
{
    return (long long)((bytes + MIB - 1) / MIB);
}

static int team_is_full(int64_t team, int64_t bytes, int64_t max, struct error *err)
{
    (void)error_set(
        err, ERROR_QUOTA,
        "your team's uploads and other temporary files hold %lld MiB, and %lld MiB more "
        "are over its limit of %lld MiB: wait until others have ended",
        to_mb(team), to_mb(bytes), to_mb(max));
    err->retry_after_s = 1;
    return -1;
}

/* With the lock held. */
static int fits(const struct spool_charge *charge, const struct limits *limits, int64_t bytes,
                struct error *err)
{
    struct spool *spool = charge->spool;
    const int64_t *held = map_get(&spool->teams, str_of(charge->team_id));
    const struct spool_disk *disk = &limits->disk;
    int64_t team = held ? *held : 0, kept = charge->kept ? disk->kept_bytes : 0;
    int64_t half = (limits->room + spool->held) / 2;

    if (disk->limit_bytes && kept + team + bytes > disk->limit_bytes) {
        if (!kept)
            return team_is_full(team, bytes, disk->limit_bytes, err);
        return error_set(err, ERROR_QUOTA,
                         "your team's limit of %lld MiB of disk is reached: it keeps %lld MiB and "
                         "uploads %lld MiB, and %lld MiB more do not fit; delete sandboxes, "
                         "snapshots, volumes or templates, or ask the operator to raise maxDiskMB",
                         to_mb(disk->limit_bytes), to_mb(kept), to_mb(team), to_mb(bytes));
    }
    if (team + bytes > spool->config.max_bytes / 2)
        return team_is_full(team, bytes, spool->config.max_bytes / 2, err);
    if (spool->held + bytes > spool->config.max_bytes) {
        (void)error_set(err, ERROR_UNAVAILABLE,
                        "the server's temporary files hold %lld MiB of at most %lld MiB (setting "
                        "spool-max): try again when uploads and builds of others have ended",
                        to_mb(spool->held), to_mb(spool->config.max_bytes));
        err->errnum = EBUSY;
        err->retry_after_s = 1;
        return -1;
    }
    if (bytes > limits->room || team + bytes > half) {
        (void)error_set(
            err, ERROR_NO_SPACE,
            "the server's disk is nearly full: %lld MiB do not fit, temporary files may "
            "take %lld MiB more there and one team half of that; free space on the data "
            "directory's file system",
            to_mb(bytes), to_mb(limits->room));
        err->errnum = ENOSPC;
        return -1;
    }
    return 0;
}

/* ---- charges ---- */

int spool_check(const struct spool_charge *charge, int64_t bytes, struct error *err)
{
    struct limits limits;
    int r;

    if (!charge->spool)
        return 0;
    if (look(charge, &limits, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&charge->spool->lock);
    r = fits(charge, &limits, bytes, err);
    (void)pthread_mutex_unlock(&charge->spool->lock);
    return r;
}

static int64_t step_of(const struct spool_charge *charge, int64_t need)
{
    int64_t step = charge->held / STEP_PART;

    step = step < STEP_MIN ? STEP_MIN : step > STEP_MAX ? STEP_MAX : step;
    return step > need ? step : need;
}

/* A step ahead where there is room for one, else what is needed. */
static int grow(struct spool_charge *charge, const struct limits *limits, int64_t bytes,
                struct error *err)
{
    struct error ignored = {0};
    int64_t need = charge->used + bytes - charge->held, step;

    if (need > 0) {
        step = step_of(charge, need);
        if (fits(charge, limits, step, &ignored) < 0) {
            step = need;
            if (fits(charge, limits, need, err) < 0)
                return -1;
        }
        team_hold(charge->spool, str_of(charge->team_id), step);
        charge->held += step;
    }
    charge->used += bytes;
    return 0;
}

int spool_add(struct spool_charge *charge, int64_t bytes, struct error *err)
{
    struct spool *spool = charge->spool;
    struct limits limits;
    bool covered;
    int r;

    if (!spool)
        return 0;
    (void)pthread_mutex_lock(&spool->lock);
    covered = charge->used + bytes <= charge->held;
    if (covered)
        charge->used += bytes;
    (void)pthread_mutex_unlock(&spool->lock);
    if (covered)
        return 0;
    /* The store and the disk are asked without the lock. */
    if (look(charge, &limits, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&spool->lock);
    r = grow(charge, &limits, bytes, err);
    (void)pthread_mutex_unlock(&spool->lock);
    return r;
}

void spool_release(struct spool_charge *charge)
{
    struct spool *spool = charge->spool;

    if (!spool)
        return;
    (void)pthread_mutex_lock(&spool->lock);
    if (charge->held)
        team_hold(spool, str_of(charge->team_id), -charge->held);
    charge->used = charge->held = 0;
    (void)pthread_mutex_unlock(&spool->lock);
}
