#include "envd/view/disk_use.h"

#include <stdatomic.h>

#include "base/fd.h"

static int group = -1;
static _Atomic uint64_t given_size;

void disk_use_init(int group_fd)
{
    group = group_fd;
}

void disk_use_set_size(uint64_t bytes)
{
    atomic_store(&given_size, bytes);
}

static bool read_number(const char *name, uint64_t *out)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 64);
    return fd_read_file_at(group, name, &text) == 0 && str_to_u64(str_trim(buf_str(&text)), out);
}

/* 0 is how the kernel spells "none" before there was one. */
static uint64_t left_of(uint64_t limit, uint64_t taken)
{
    if (limit == 0)
        return UINT64_MAX;
    return limit > taken ? limit - taken : 0;
}

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The limit is held against what is charged ("referenced"), the share of a pool that gets full against what
 * is exclusively ours (host/disk/disk_share.c); both include what is written but not flushed. */
bool disk_use_read(uint64_t pool_free, struct disk_use *out)
{
    uint64_t limit, cap, charged, exclusive, unwritten, size, left;

    if (group < 0 || !read_number("max_referenced", &limit) ||
        !read_number("max_exclusive", &cap) || !read_number("referenced", &charged) ||
        !read_number("exclusive", &exclusive) || !read_number("rsv_data", &unwritten) ||
        limit == 0 || limit == UINT64_MAX)
        return false;
    size = atomic_load(&given_size);
    if (size == 0 || size > limit)
        size = limit;
    left = lower(left_of(limit, charged + unwritten), size);
    *out = (struct disk_use){
        .size = size,
        .used = size - left,
        .available = lower(lower(left, left_of(cap, exclusive + unwritten)), pool_free)};
    return true;
}
