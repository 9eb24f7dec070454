/* How it works: the kernel sends one request per read and takes one answer per write. The only inode
 * is the root, number 1, a read-only regular file without a fixed size: reads go past the page cache
 * (FOPEN_DIRECT_IO), so every reader gets numbers of the moment. Requests that a read-only single
 * file does not need are answered "not implemented", which the kernel remembers. */
#include "envd/meminfo.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "envd/guest_stat.h"

enum {
    KIB = 1024,
    OUR_MINOR = 31,
    REQUESTS_PER_TURN = 16,
};

struct meminfo {
    uv_poll_t poll;
    int fd;
    uint64_t mem_bytes;
};

static void add_line(struct buf *out, const char *name, uint64_t bytes)
{
    char label[32];

    (void)snprintf(label, sizeof(label), "%s:", name);
    buf_printf(out, "%-16s%8llu kB\n", label, (unsigned long long)(bytes / KIB));
}

void meminfo_text(const struct usage *usage, struct buf *out)
{
    uint64_t free_bytes = usage->mem_total - usage->mem_used;
    uint64_t reclaimable =
        usage->mem_active_file + usage->mem_inactive_file + usage->mem_slab_reclaimable;
    uint64_t available = free_bytes + reclaimable;

    if (available > usage->mem_total)
        available = usage->mem_total;
    add_line(out, "MemTotal", usage->mem_total);
    add_line(out, "MemFree", free_bytes);
    add_line(out, "MemAvailable", available);
    add_line(out, "Buffers", 0);
    add_line(out, "Cached", usage->mem_cache);
    add_line(out, "SwapCached", 0);
    add_line(out, "Active", usage->mem_active_file + usage->mem_anon);
    add_line(out, "Inactive", usage->mem_inactive_file);
    add_line(out, "Active(anon)", usage->mem_anon);
    add_line(out, "Inactive(anon)", 0);
    add_line(out, "Active(file)", usage->mem_active_file);
    add_line(out, "Inactive(file)", usage->mem_inactive_file);
    add_line(out, "SwapTotal", 0);
    add_line(out, "SwapFree", 0);
    add_line(out, "Dirty", 0);
    add_line(out, "Writeback", 0);
    add_line(out, "AnonPages", usage->mem_anon);
    add_line(out, "Mapped", 0);
    add_line(out, "Shmem", usage->mem_shmem);
    add_line(out, "KReclaimable", usage->mem_slab_reclaimable);
    add_line(out, "Slab", usage->mem_slab_reclaimable);
    add_line(out, "SReclaimable", usage->mem_slab_reclaimable);
    add_line(out, "SUnreclaim", 0);
}

struct request {
    struct fuse_in_header head;
    struct str body;
};

/* Copies a body of at least the given size; the kernel's version decides how long they are. */
static bool body_as(const struct request *request, void *out, size_t size)
{
    if (request->body.len < size)
        return false;
    memcpy(out, request->body.p, size);
    return true;
}

static size_t reply_with(char *reply, uint64_t unique, int error, const void *body, size_t len)
{
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof(head) + len), .error = error, .unique = unique};

    memcpy(reply, &head, sizeof(head));
    if (len)
        memcpy(reply + sizeof(head), body, len);
    return sizeof(head) + len;
}

static size_t answer_init(const struct request *request, char *reply)
{
    struct fuse_init_in in = {0};
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = OUR_MINOR};

    /* The part every version of the protocol has. */
    if (!body_as(request, &in, 2 * sizeof(uint32_t)) || in.major < FUSE_KERNEL_VERSION)
        return reply_with(reply, request->head.unique, -EPROTO, NULL, 0);
    if (in.major == FUSE_KERNEL_VERSION && in.minor < OUR_MINOR)
        out.minor = in.minor;
    out.max_write = 4096;
    out.time_gran = 1;
    return reply_with(reply, request->head.unique, 0, &out,
                      in.major == FUSE_KERNEL_VERSION && in.minor < 23
                          ? FUSE_COMPAT_22_INIT_OUT_SIZE
                          : sizeof(out));
}

static size_t answer_getattr(const struct request *request, char *reply)
{
    struct fuse_attr_out out = {.attr_valid = 3600};

    out.attr.ino = FUSE_ROOT_ID;
    out.attr.mode = S_IFREG | 0444;
    out.attr.nlink = 1;
    out.attr.blksize = 4096;
    return reply_with(reply, request->head.unique, 0, &out, sizeof(out));
}

static size_t answer_read(const struct request *request, struct str text, char *reply)
{
    struct fuse_read_in in;
    size_t most = MEMINFO_REPLY_MAX - sizeof(struct fuse_out_header);

    if (!body_as(request, &in, sizeof(in)))
        return reply_with(reply, request->head.unique, -EINVAL, NULL, 0);
    text = in.offset < text.len ? str_skip(text, (size_t)in.offset) : STR("");
    if (most > in.size)
        most = in.size;
    return reply_with(reply, request->head.unique, 0, text.p, text.len < most ? text.len : most);
}

size_t meminfo_answer(const void *request_bytes, size_t len, struct str text,
                      char reply[MEMINFO_REPLY_MAX])
{
    struct fuse_open_out opened = {.open_flags = FOPEN_DIRECT_IO};
    struct fuse_statfs_out statfs_out = {.st = {.bsize = 4096, .namelen = 255, .frsize = 4096}};
    struct request request;

    if (len < sizeof(request.head))
        return 0;
    memcpy(&request.head, request_bytes, sizeof(request.head));
    if (request.head.len != len)
        return 0;
    request.body =
        str_n((const char *)request_bytes + sizeof(request.head), len - sizeof(request.head));
    switch (request.head.opcode) {
    case FUSE_INIT:
        return answer_init(&request, reply);
    case FUSE_GETATTR:
        return answer_getattr(&request, reply);
    case FUSE_OPEN:
        return reply_with(reply, request.head.unique, 0, &opened, sizeof(opened));
    case FUSE_READ:
        return answer_read(&request, text, reply);
    case FUSE_STATFS:
        return reply_with(reply, request.head.unique, 0, &statfs_out, sizeof(statfs_out));
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_ACCESS:
        return reply_with(reply, request.head.unique, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return 0;
    default:
        return reply_with(reply, request.head.unique, -ENOSYS, NULL, 0);
    }
}

static struct meminfo *served; /* at most one */

static void current_text(const struct meminfo *meminfo, struct buf *out)
{
    struct usage usage;

    usage_read(USAGE_ROOT, meminfo->mem_bytes, &usage);
    meminfo_text(&usage, out);
}

int meminfo_read_own(struct buf *out)
{
    if (!served)
        return -ENODEV;
    current_text(served, out);
    return 0;
}

/* False when there is nothing to read now, or ever again. */
static bool serve_one(struct meminfo *meminfo)
{
    char request[MEMINFO_REQUEST_MAX], reply[MEMINFO_REPLY_MAX];
    auto_buf struct buf text = {0};
    struct fuse_in_header head;
    ssize_t n = read(meminfo->fd, request, sizeof(request));
    size_t len;

    /* ENOENT: the request was withdrawn before we took it. */
    if (n < 0)
        return errno == EINTR || errno == ENOENT;
    buf_init(&text, MEMINFO_REPLY_MAX);
    if ((size_t)n >= sizeof(head)) {
        memcpy(&head, request, sizeof(head));
        if (head.opcode == FUSE_READ)
            current_text(meminfo, &text);
    }
    len = meminfo_answer(request, (size_t)n, buf_str(&text), reply);
    /* A refused answer means that whoever asked is gone. */
    if (len > 0 && write(meminfo->fd, reply, len) < 0 && errno != ENOENT)
        log_warn("meminfo", "answer refused: errno %d, ignoring", errno);
    return true;
}

static void on_closed(uv_handle_t *handle)
{
    struct meminfo *meminfo = handle->data;

    close_fd(&meminfo->fd);
    served = NULL;
    free(meminfo);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    if (status < 0) { /* unmounted */
        uv_close((uv_handle_t *)poll, on_closed);
        return;
    }
    for (int i = 0; i < REQUESTS_PER_TURN; i++)
        if (!serve_one(poll->data))
            break;
}

int meminfo_start(struct loop *loop, int fuse_fd_consume, uint64_t mem_bytes)
{
    struct meminfo *meminfo = xcalloc(1, sizeof(*meminfo));
    struct guest_stat st;
    int r;

    meminfo->fd = fuse_fd_consume;
    meminfo->mem_bytes = mem_bytes;
    (void)fd_set_nonblocking(meminfo->fd, true);
    r = uv_poll_init(loop_uv(loop), &meminfo->poll, meminfo->fd);
    if (r != 0) {
        close_fd(&meminfo->fd);
        free(meminfo);
        return r;
    }
    meminfo->poll.data = meminfo;
    (void)uv_poll_start(&meminfo->poll, UV_READABLE, on_readable);
    served = meminfo;
    if (guest_stat("/proc/meminfo", true, &st) == 0)
        guest_stat_set_own(&st);
    return 0;
}
