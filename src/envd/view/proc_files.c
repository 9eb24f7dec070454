/* How it works: the kernel sends one request per read and takes one answer per write. The files are
 * read-only regular ones without a fixed size: reads go past the page cache (FOPEN_DIRECT_IO), so every
 * reader gets numbers of the moment. They have been looked up, and the kernel greeted, before envd
 * runs (host/native/box_files.c); a file's node number is its inode's. Requests that such files do not need
 * are answered "not implemented", which the kernel remembers. */
#include "envd/view/proc_files.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "envd/files/guest_stat.h"
#include "envd/view/proc_text.h"

enum {
    REQUESTS_PER_TURN = 16,
    TEXT_MAX = 512 * 1024, /* one line for each processor */
};

static const struct file {
    const char *path;
    void (*write)(struct proc_text *state, struct buf *out);
} files[] = {
    {"/proc/meminfo", proc_text_meminfo},
    {"/proc/stat", proc_text_stat},
    {"/proc/loadavg", proc_text_loadavg},
};

enum { FILES = sizeof(files) / sizeof(files[0]) };

struct proc_files {
    uv_poll_t poll;
    int fd;
    struct proc_text state;
    uint64_t nodes[FILES];
    /* As of the last read from a file's begin: those that follow continue it. */
    struct buf texts[FILES];
};

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

static size_t answer_getattr(const struct request *request, char *reply)
{
    struct fuse_attr_out out = {.attr_valid = 3600};

    out.attr.ino = request->head.nodeid;
    out.attr.mode = S_IFREG | 0444;
    out.attr.nlink = 1;
    out.attr.blksize = 4096;
    return reply_with(reply, request->head.unique, 0, &out, sizeof(out));
}

static size_t answer_read(const struct request *request, struct str text, char *reply)
{
    struct fuse_read_in in;
    size_t most = PROC_FILES_REPLY_MAX - sizeof(struct fuse_out_header);

    if (!body_as(request, &in, sizeof(in)))
        return reply_with(reply, request->head.unique, -EINVAL, NULL, 0);
    text = in.offset < text.len ? str_skip(text, (size_t)in.offset) : STR("");
    if (most > in.size)
        most = in.size;
    return reply_with(reply, request->head.unique, 0, text.p, text.len < most ? text.len : most);
}

size_t proc_files_answer(const void *request_bytes, size_t len, struct str text,
                         char reply[PROC_FILES_REPLY_MAX])
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

static struct proc_files *served; /* at most one */

static size_t find(const struct proc_files *served_files, uint64_t node)
{
    size_t i = 0;

    while (i < FILES && served_files->nodes[i] != node)
        i++;
    return i;
}

int proc_files_read_own(uint64_t node, struct buf *out)
{
    size_t i = served ? find(served, node) : FILES;

    if (i == FILES)
        return -ENODEV;
    files[i].write(&served->state, out);
    return 0;
}

/* What a reader gets a part of. */
static struct str text_for(struct proc_files *served_files, const char *request, size_t len)
{
    struct fuse_in_header head;
    struct fuse_read_in in;
    size_t i;

    if (len < sizeof(head) + sizeof(in))
        return STR("");
    memcpy(&head, request, sizeof(head));
    memcpy(&in, request + sizeof(head), sizeof(in));
    i = find(served_files, head.nodeid);
    if (head.opcode != FUSE_READ || i == FILES)
        return STR("");
    if (in.offset == 0 || served_files->texts[i].len == 0) {
        buf_clear(&served_files->texts[i]);
        files[i].write(&served_files->state, &served_files->texts[i]);
    }
    return buf_str(&served_files->texts[i]);
}

/* False when there is nothing to read now, or ever again. */
static bool serve_one(struct proc_files *served_files)
{
    char request[PROC_FILES_REQUEST_MAX], reply[PROC_FILES_REPLY_MAX];
    ssize_t n = read(served_files->fd, request, sizeof(request));
    size_t len;

    /* ENOENT: the request was withdrawn before we took it. */
    if (n < 0)
        return errno == EINTR || errno == ENOENT;
    len = proc_files_answer(request, (size_t)n, text_for(served_files, request, (size_t)n), reply);
    /* A refused answer means that whoever asked is gone. */
    if (len > 0 && write(served_files->fd, reply, len) < 0 && errno != ENOENT)
        log_warn("files", "answer refused: errno %d, ignoring", errno);
    return true;
}

static void on_closed(uv_handle_t *handle)
{
    struct proc_files *closed = handle->data;

    close_fd(&closed->fd);
    for (size_t i = 0; i < FILES; i++)
        buf_done(&closed->texts[i]);
    served = NULL;
    free(closed);
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

int proc_files_start(struct loop *loop, int fuse_fd_consume, uint64_t mem_bytes)
{
    struct proc_files *started = xcalloc(1, sizeof(*started));
    int r;

    started->fd = fuse_fd_consume;
    proc_text_init(&started->state, USAGE_ROOT, mem_bytes);
    (void)fd_set_nonblocking(started->fd, true);
    r = uv_poll_init(loop_uv(loop), &started->poll, started->fd);
    if (r != 0) {
        close_fd(&started->fd);
        free(started);
        return r;
    }
    started->poll.data = started;
    (void)uv_poll_start(&started->poll, UV_READABLE, on_readable);
    served = started;
    for (size_t i = 0; i < FILES; i++) {
        struct guest_stat st;

        buf_init(&started->texts[i], TEXT_MAX);
        if (guest_stat(files[i].path, true, &st) != 0)
            continue;
        started->nodes[i] = st.ino;
        guest_stat_set_own(&st);
    }
    return 0;
}

void proc_files_set_memory(uint64_t mem_bytes)
{
    if (served)
        served->state.mem_bytes = mem_bytes;
}
