/* Fair shares of a pool that gets full.
 *
 * The limits of boxes may add up to more than the pool has, so one box, well within its own, could take
 * the last free block. Therefore each box has a second limit, its cap. The limit that was asked for is held
 * against what its group references, the cap against what is exclusively its: the kernel knows both and
 * the lower one counts, so that neither has to be remembered for the other. Volumes have caps as well.
 *
 *   free space    what each may add
 *   > mark        all but three quarters of the mark: a single call cannot take everything
 *   < mark        an equal share of what is above the reserve, once; what comes free later goes to those
 *                 who have used theirs. Nobody's share is taken by others, and none is less than `least`:
 *                 with many boxes those add up to more than there is, but no few of them can take it all
 *   > 1.5 marks   as at first
 *
 * A box whose own limit is lower has no cap. All are looked at only when the free space changed a good deal
 * or is little. New ones are born with theirs. Caps outlive us; the first look sets all of them anew. */
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "host/disk/disk_internal.h"

#define GIB (1024ull * 1024 * 1024)

static const uint64_t mark_min = GIB, mark_max = 16 * GIB;
enum { MARK_PART = 10, SMALL_POOL_PART = 4, LEAST_PART = 16, PAUSE_TIMES = 10 };

struct pool {
    uint64_t free, mark, reserve, least;
};

struct members {
    struct disk_group_state *all;
    size_t count, capacity;
};

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static int look(const struct disk *disk, struct pool *out, struct error *err)
{
    struct statvfs fs;
    uint64_t size, mark;

    if (fstatvfs(disk->pool_fd, &fs) < 0)
        return error_set_errno(err, errno, "ask for the free space of the pool");
    size = (uint64_t)fs.f_blocks * fs.f_frsize;
    mark = lower(size / MARK_PART, mark_max);
    mark = lower(mark > mark_min ? mark : mark_min, size / SMALL_POOL_PART);
    /* What is written but not flushed is not free, though statvfs() says so. */
    *out =
        (struct pool){.free = above((uint64_t)fs.f_bavail * fs.f_frsize, disk_quota_pending(disk)),
                      .mark = mark,
                      .reserve = mark / 2,
                      .least = mark / LEAST_PART + 1};
    return 0;
}

static int add_members(const struct disk *disk, int dir_fd, struct members *out, struct error *err)
{
    char **names;
    size_t count;

    if (disk_subvol_list(dir_fd, &names, &count, err) < 0)
        return -1;
    if (out->count + count > out->capacity) {
        out->capacity = out->count + count;
        out->all = xrealloc(out->all, out->capacity * sizeof(*out->all));
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t id = disk_subvol_id(dir_fd, names[i]);

        /* One that was just deleted has none. */
        if (id && disk_quota_state(disk, id, &out->all[out->count]) == 0)
            out->count++;
        free(names[i]);
    }
    free(names);
    return 0;
}

static uint64_t left_of(const struct disk_group_state *member)
{
    return above(lower(member->cap, member->limit), member->held);
}

/* What each of those that have less than the least left may be given of what nobody was given yet. */
static uint64_t spare_for_each(const struct pool *pool, const struct members *members)
{
    uint64_t given = pool->reserve, needy = 0, spare;

    for (size_t i = 0; i < members->count; i++) {
        uint64_t left = left_of(&members->all[i]);

        given += lower(left, pool->free);
        needy += left < pool->least;
    }
    spare = above(pool->free, given);
    return needy && spare >= pool->least ? spare / needy : 0;
}

static int set_cap(const struct disk *disk, const struct disk_group_state *member, uint64_t add,
                   struct error *err)
{
    uint64_t cap = add < UINT64_MAX - member->held ? member->held + add : UINT64_MAX;

    if (cap >= member->limit)
        cap = UINT64_MAX;
    return cap == member->cap ? 0 : disk_quota_cap(disk, member->subvolume, cap, err);
}

/* Everybody gets the same. */
static int set_all(const struct disk *disk, const struct members *members, uint64_t add,
                   struct error *err)
{
    int r = 0;

    for (size_t i = 0; i < members->count; i++)
        if (set_cap(disk, &members->all[i], add, err) < 0)
            r = -1;
    return r;
}

static int share_on(const struct disk *disk, const struct pool *pool, const struct members *members,
                    struct error *err)
{
    uint64_t spare = spare_for_each(pool, members);
    uint64_t most = above(pool->free, pool->reserve);
    int r = 0;

    if (most < pool->least)
        most = pool->least;
    for (size_t i = 0; i < members->count; i++) {
        const struct disk_group_state *member = &members->all[i];
        uint64_t left = left_of(member);
        uint64_t add = lower(left < pool->least ? left + spare : left, most);

        if (add != left && set_cap(disk, member, add, err) < 0)
            r = -1;
    }
    return r;
}

static int walk(struct disk *disk, const struct pool *pool, bool low, struct error *err)
{
    bool begins = low && !disk->share.low;
    uint64_t add = above(pool->free, pool->mark / 4 * 3);
    struct members members = {0};
    int r;

    /* First, so that none is born with what the others just lost. */
    __atomic_store_n(&disk->share.room, low || add < pool->least ? pool->least : add,
                     __ATOMIC_RELAXED);
    r = add_members(disk, disk->boxes_fd, &members, err);
    if (r == 0)
        r = add_members(disk, disk->volumes_fd, &members, err);
    if (begins && members.count)
        add = above(pool->free, pool->reserve) / members.count;
    if (add < pool->least)
        add = pool->least;
    if (r == 0)
        r = low && !begins ? share_on(disk, pool, &members, err)
                           : set_all(disk, &members, add, err);
    free(members.all);
    return r;
}

int disk_share(struct disk *disk, struct error *err)
{
    struct disk_share *share = &disk->share;
    int64_t now = clock_mono_ms();
    struct pool pool = {0};
    uint64_t change;
    bool low;

    if (look(disk, &pool, err) < 0)
        return -1;
    low = pool.free < (share->low ? pool.mark + pool.mark / 2 : pool.mark);
    change = above(pool.free, share->free) + above(share->free, pool.free);
    if (share->room && low == share->low &&
        (now < share->next_ms || (!low && change < pool.mark / 4)))
        return 0;
    if (walk(disk, &pool, low, err) < 0)
        return error_prefix(err, "share what is left of the pool");
    share->low = low;
    share->free = pool.free;
    share->next_ms = clock_mono_ms() + (clock_mono_ms() - now) * PAUSE_TIMES;
    return 0;
}

uint64_t disk_share_room(const struct disk *disk, uint64_t limit_bytes)
{
    uint64_t room = __atomic_load_n(&disk->share.room, __ATOMIC_RELAXED);

    return room && (limit_bytes == 0 || limit_bytes > room) ? room : UINT64_MAX;
}

int disk_share_limit(const struct disk *disk, int subvol_fd, uint64_t limit_bytes,
                     struct error *err)
{
    uint64_t room = disk_share_room(disk, limit_bytes), id;
    struct disk_group_state state;

    if (room == UINT64_MAX)
        return 0;
    if (disk_tree_subvolume(subvol_fd, &id, err) < 0)
        return -1;
    if (disk_quota_state(disk, id, &state) < 0 || state.cap != UINT64_MAX)
        return 0;
    return set_cap(disk, &state, room, err);
}

int disk_share_beyond(const struct disk *disk, int subvol_fd,
                      int (*work)(int subvol_fd, const void *arg, struct error *err),
                      const void *arg, struct error *err)
{
    struct disk_group_state before, after;
    struct error ignored;
    uint64_t id;
    int r = work(subvol_fd, arg, err);

    if (r == 0 || err->errnum != EDQUOT || disk_tree_subvolume(subvol_fd, &id, &ignored) < 0 ||
        disk_quota_state(disk, id, &before) < 0 || before.cap == UINT64_MAX ||
        disk_quota_cap(disk, id, before.held + DISK_START_WORK, &ignored) < 0)
        return r;
    r = work(subvol_fd, arg, err);
    if (disk_quota_state(disk, id, &after) == 0 && after.cap == before.held + DISK_START_WORK)
        (void)disk_quota_cap(disk, id, before.cap, &ignored);
    return r;
}
