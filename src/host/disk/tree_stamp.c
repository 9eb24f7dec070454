/* The stamp of a tree: how many entries, how many bytes, and a digest of all names, kinds, sizes, owners, modes and
 * times. Entries are summed up, so their order does not matter and nothing has to be kept in memory. It tells damage,
 * not forgery: nobody but root can write here. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "host/disk/tree_internal.h"

#define STAMP_NOTE "trusted.quicksand.stamp"
enum { STAMP_SIZE = 128 };

static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* The last bytes of what was mixed in reach all bits. */
static uint64_t scatter(uint64_t hash)
{
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
    hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
    return hash ^ (hash >> 33);
}

/* What stays the same for as long as nobody writes. A directory's size depends on its past, its number of links on
 * the file system. */
static uint64_t add(struct tree_stamp *stamp, const struct tree_entry *entry)
{
    const struct stat *st = &entry->st;
    bool dir = S_ISDIR(st->st_mode);
    const uint64_t facts[] = {st->st_mode,
                              st->st_uid,
                              st->st_gid,
                              st->st_rdev,
                              dir ? 0 : (uint64_t)st->st_size,
                              (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec};
    const char *name = entry->name ? entry->name : "";
    uint64_t path = scatter(mix(entry->above ^ 0xcbf29ce484222325u, name, strlen(name)));
    uint64_t hash = scatter(mix(path, facts, sizeof(facts)));

    stamp->info.entries++;
    stamp->info.bytes += (uint64_t)st->st_blocks * 512 / (dir ? 1 : st->st_nlink);
    stamp->digest[0] += hash;
    stamp->digest[1] += scatter(hash ^ path);
    return path;
}

static int enter(void *arg, const struct tree_entry *entry, uint64_t *out_note, struct error *err)
{
    (void)err;
    *out_note = add(arg, entry);
    return 0;
}

/* Nothing inside can make a device; the one that is none marks what a layer hides. */
static int leaf(void *arg, const struct tree_entry *entry, struct error *err)
{
    if (S_ISBLK(entry->st.st_mode) || (S_ISCHR(entry->st.st_mode) && entry->st.st_rdev != 0))
        return error_set(err, ERROR_INVALID, "a device is in it");
    (void)add(arg, entry);
    return 0;
}

static int make(const struct trees *trees, int root_fd, bool moving, struct tree_stamp *out,
                struct error *err)
{
    struct tree_walk walk = {
        .trees = trees, .arg = out, .moving = moving, .enter = enter, .leaf = leaf};

    *out = (struct tree_stamp){0};
    return tree_walk(&walk, root_fd, err);
}

int tree_stamp_make(const struct trees *trees, int root_fd, struct tree_stamp *out,
                    struct error *err)
{
    return make(trees, root_fd, false, out, err);
}

int tree_stamp_measure(const struct trees *trees, int root_fd, struct tree_stamp *out,
                       struct error *err)
{
    return make(trees, root_fd, true, out, err);
}

int tree_stamp_write(int root_fd, const struct tree_stamp *stamp, struct error *err)
{
    char text[STAMP_SIZE];
    int len = snprintf(text, sizeof(text), "1 %" PRIu64 " %" PRIu64 " %016" PRIx64 "%016" PRIx64,
                       stamp->info.entries, stamp->info.bytes, stamp->digest[0], stamp->digest[1]);

    if (fsetxattr(root_fd, STAMP_NOTE, text, (size_t)len, 0) < 0)
        return error_set_errno(err, errno, "stamp a tree");
    return 0;
}

int tree_stamp_read(int root_fd, struct tree_stamp *out, struct error *err)
{
    char text[STAMP_SIZE];
    ssize_t len = fgetxattr(root_fd, STAMP_NOTE, text, sizeof(text) - 1);

    if (len < 0 && errno == ENODATA)
        return error_set(err, ERROR_NOT_FOUND, "it has no stamp");
    if (len < 0)
        return error_set_errno(err, errno, "read the stamp");
    text[len] = '\0';
    if (sscanf(text, "1 %" SCNu64 " %" SCNu64 " %16" SCNx64 "%16" SCNx64, &out->info.entries,
               &out->info.bytes, &out->digest[0], &out->digest[1]) != 4)
        return error_set(err, ERROR_INTERNAL, "its stamp is broken");
    return 0;
}
