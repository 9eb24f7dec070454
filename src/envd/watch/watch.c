/* How it works: one inotify instance per watcher, and for a tree one watch per directory in it.
 *
 * A new directory can have content before its own watch is there. So it is watched first and looked
 * into afterwards, and what is found is reported as created, files that are not empty also as written:
 * whoever waits for that must not miss it. What was created between the two is then found *and*
 * reported by the kernel; the names found are kept in `seen`, and the kernel's report of one of them is
 * dropped. Everything that can be such a report is in the kernel's queue when the looking is over; the
 * queue is taken over at that moment, and once its last byte has been worked off, `seen` is emptied.
 * While directories wait to be looked into, no report is worked off.
 *
 * The kernel's queue is short, so it is always taken over first (`raw`), then worked off in slices.
 *
 * Directories that move keep their watches. A move within the tree is two reports with one cookie;
 * after the first, the directory is cut off, and when the second has not come within CUT_MS it has
 * left the tree and its watches go.
 *
 * Files that envd itself writes for clients have another name until they are complete
 * (upload_file.h). That name is never reported; what is, is what a client expects: a new file is
 * created and written, an existing one written. */
#include "envd/watch/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "envd/files/guest_mount.h"
#include "envd/files/guest_stat.h"
#include "envd/files/upload_file.h"
#include "envd/watch/watch_tree.h"

enum {
    MASK = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE |
           IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
    RAW_MAX = 16 * 1024 * 1024,
    READ_SIZE = 64 * 1024,
    DIRECTORIES_MAX = 100 * 1000,
    SEEN_MAX = 256 * 1024,
    TURN_STEPS = 4096, /* then others get their turn */
    DRAIN_STEPS = 256,
    CATCH_UP_TURNS = 16,
    CUT_MS = 20,
};

struct watch {
    struct watch_config config;
    struct loop *loop;
    uv_poll_t poll;
    uv_idle_t turn;   /* there is more to do at once */
    uv_timer_t later; /* for those cut off */
    unsigned handles;
    int fd;
    bool ready, dead;
    struct watch_tree tree;
    struct list work; /* directories to look into */
    struct list cut;  /* on their way to another place, or out of the tree */
    DIR *dir;         /* the one being looked into */
    struct watch_node *looking;
    struct buf raw; /* reports taken from the kernel; worked off up to raw_at */
    size_t raw_at;
    struct map seen;  /* relative paths */
    size_t seen_left; /* bytes of reports until seen is of no use any more */
    uint32_t temp_cookie;
    char temp_kind;
    char root[PATH_MAX];
};

static void on_turn(uv_idle_t *turn);
static void on_later(uv_timer_t *timer);

static void stop(struct watch *watch)
{
    watch->dead = true;
    (void)uv_poll_stop(&watch->poll);
    (void)uv_idle_stop(&watch->turn);
    (void)uv_timer_stop(&watch->later);
    close_fd(&watch->fd);
}

static void fail(struct watch *watch, const struct error *err)
{
    if (watch->dead)
        return;
    stop(watch);
    watch->config.on_failed(watch->config.arg, err);
}

static void fail_overflow(struct watch *watch)
{
    struct error err;

    error_set(&err, ERROR_QUOTA,
              "too many changes at once in '%s': some were missed, watch it again", watch->root);
    fail(watch, &err);
}

/* ---- reports to the client ---- */

static void emit(struct watch *watch, enum watch_op op, const char *name)
{
    if (!watch->dead)
        watch->config.on_event(watch->config.arg, op, name);
}

static bool absolute(const struct watch *watch, const char *relative, char out[PATH_MAX])
{
    const char *slash = strcmp(watch->root, "/") == 0 ? "" : "/";
    int len = snprintf(out, PATH_MAX, "%s%s%s", watch->root, relative[0] ? slash : "", relative);

    return len > 0 && len < PATH_MAX;
}

static bool is_temp(struct str name)
{
    return str_starts(name, STR(UPLOAD_TEMP_PREFIX));
}

static bool forget_seen(struct watch *watch, const char *path)
{
    return watch->seen.count > 0 && map_remove(&watch->seen, str_of(path)) != NULL;
}

static bool has_content(const struct watch *watch, const char *relative)
{
    char path[PATH_MAX];
    struct guest_stat st;

    return absolute(watch, relative, path) && guest_stat(path, false, &st) == 0 &&
           S_ISREG(st.mode) && st.size > 0;
}

/* Reports what looking into a directory has found. */
static void report_found(struct watch *watch, const char *path, bool is_dir)
{
    if (map_get(&watch->seen, str_of(path)))
        return;
    if (watch->seen.count >= SEEN_MAX) {
        fail_overflow(watch);
        return;
    }
    (void)map_put(&watch->seen, str_of(path), watch);
    emit(watch, WATCH_CREATE, path);
    if (!is_dir && has_content(watch, path))
        emit(watch, WATCH_WRITE, path);
}

/* ---- directories ---- */

static int add_watch(struct watch *watch, const char *path, unsigned extra)
{
    int wd = inotify_add_watch(watch->fd, path, MASK | extra);
    struct error err;

    if (wd >= 0)
        return wd;
    if (errno == ENOSPC || errno == ENOMEM) {
        error_set(&err, ERROR_QUOTA, "too many directories to watch in '%s'", watch->root);
        fail(watch, &err);
    }
    return -1; /* gone again, or no directory any more */
}

static void look_into(struct watch *watch, struct watch_node *node, bool quiet)
{
    node->quiet = quiet;
    list_remove(&node->work);
    list_push_back(&watch->work, &node->work);
}

static bool is_within(const struct watch_node *node, const struct watch_node *above)
{
    for (; node; node = node->parent)
        if (node == above)
            return true;
    return false;
}

/* Mounts of /proc and the like are left out, and of network file systems unless allowed. */
static bool may_enter(const struct watch *watch, const struct watch_node *parent, const char *path,
                      uint64_t *out_mount)
{
    struct guest_stat st;
    enum guest_mount kind;

    if (guest_stat(path, false, &st) != 0 || !S_ISDIR(st.mode))
        return false;
    *out_mount = st.mount;
    if (st.mount == parent->mount)
        return true;
    kind = guest_mount_kind(st.mount);
    return kind == GUEST_MOUNT_ORDINARY ||
           (kind == GUEST_MOUNT_NETWORK && watch->config.allow_network);
}

/* The directory `name` in parent is new there: how, the kernel (event, 0: nobody) has said. */
static void enter(struct watch *watch, struct watch_node *parent, struct str name, unsigned event)
{
    char relative[PATH_MAX], path[PATH_MAX];
    struct watch_node *node;
    uint64_t mount;
    int wd;

    if (!watch_tree_path(parent, name, relative) || !absolute(watch, relative, path) ||
        !may_enter(watch, parent, path, &mount))
        return;
    wd = add_watch(watch, path, IN_DONT_FOLLOW);
    if (wd < 0)
        return;
    node = watch_tree_find(&watch->tree, wd);
    if (!node && watch->tree.by_wd.count >= DIRECTORIES_MAX) {
        fail_overflow(watch);
        return;
    }
    if (!node) {
        node = watch_tree_add(&watch->tree, parent, wd, name);
        node->mount = mount;
        look_into(watch, node, event == 0 && parent->quiet);
        return;
    }
    /* One directory at two places (bind mounts), or at its old place until its move is reported. */
    if (is_within(parent, node) || (event == 0 && node->cookie == 0))
        return;
    if (node->parent != parent || !str_eq(str_of(node->name), name))
        node = watch_tree_move(&watch->tree, node, parent, name);
    if (event & IN_CREATE)
        look_into(watch, node, false);
}

static void look_at(struct watch *watch, const struct dirent *entry)
{
    struct watch_node *node = watch->looking;
    struct str name = str_of(entry->d_name);
    bool is_dir = entry->d_type == DT_DIR;
    char relative[PATH_MAX], path[PATH_MAX];
    struct guest_stat st;

    if (str_is(name, ".") || str_is(name, "..") || is_temp(name) ||
        !watch_tree_path(node, name, relative))
        return;
    if (entry->d_type == DT_UNKNOWN && absolute(watch, relative, path))
        is_dir = guest_stat(path, false, &st) == 0 && S_ISDIR(st.mode);
    if (!node->quiet)
        report_found(watch, relative, is_dir);
    if (is_dir && !watch->dead)
        enter(watch, node, name, 0);
}

static void open_next(struct watch *watch)
{
    struct watch_node *node = container_of(list_pop_front(&watch->work), struct watch_node, work);
    char relative[PATH_MAX], path[PATH_MAX];
    struct error err;
    int fd;

    if (!watch_tree_path(node, STR_NONE, relative) || !absolute(watch, relative, path))
        return;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (relative[0] ? O_NOFOLLOW : 0));
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        error_set_errno(&err, errno, "cannot read '%s'", path);
        fail(watch, &err);
    }
    if (fd < 0)
        return; /* gone again */
    watch->dir = fdopendir(fd);
    if (!watch->dir)
        (void)close(fd);
    watch->looking = node;
}

static void close_dir(struct watch *watch)
{
    if (watch->dir)
        (void)closedir(watch->dir);
    watch->dir = NULL;
    watch->looking = NULL;
}

static void drain(struct watch *watch);

/* One step of looking into directories. */
static void look(struct watch *watch)
{
    struct dirent *entry;

    if (!watch->dir) {
        open_next(watch);
    } else if ((entry = readdir(watch->dir))) {
        look_at(watch, entry);
    } else {
        close_dir(watch);
    }
    if (watch->dead || watch->dir || !list_empty(&watch->work))
        return;
    drain(watch);
    watch->seen_left = watch->raw.len - watch->raw_at;
    if (watch->seen_left == 0) {
        map_done(&watch->seen);
        map_init(&watch->seen);
    }
}

/* ---- reports from the kernel ---- */

/* Takes over what the kernel has. */
static void drain(struct watch *watch)
{
    for (;;) {
        char *to;
        ssize_t n;

        if (watch->raw_at == watch->raw.len) {
            buf_clear(&watch->raw);
            watch->raw_at = 0;
        } else if (watch->raw_at > READ_SIZE && watch->raw_at > watch->raw.len / 2) {
            buf_drop(&watch->raw, watch->raw_at);
            watch->raw_at = 0;
        }
        to = buf_reserve(&watch->raw, READ_SIZE);
        if (!to) {
            fail_overflow(watch);
            return;
        }
        n = read(watch->fd, to, READ_SIZE);
        if (n <= 0)
            return;
        buf_grew(&watch->raw, (size_t)n);
    }
}

static void remove_node(struct watch *watch, struct watch_node *node, int fd)
{
    watch_tree_remove(&watch->tree, node, fd);
}

/* True when the name stands for another one; then everything is said. */
static bool on_temp(struct watch *watch, const struct inotify_event *event, const char *relative)
{
    struct str name = str_of(event->name);
    char path[PATH_MAX], kind = watch->temp_kind;
    struct guest_stat st;

    if (is_temp(name)) {
        if (event->mask & IN_MOVED_FROM) {
            watch->temp_cookie = event->cookie;
            watch->temp_kind = event->name[sizeof(UPLOAD_TEMP_PREFIX) - 1];
        }
        return true;
    }
    if (!(event->mask & IN_MOVED_TO) || event->cookie == 0 || event->cookie != watch->temp_cookie)
        return false;
    watch->temp_cookie = 0;
    if (kind != 'r' && !forget_seen(watch, relative))
        emit(watch, WATCH_CREATE, relative);
    emit(watch, WATCH_CHMOD, relative); /* it got its owner */
    if (kind == 'r' ||
        (absolute(watch, relative, path) && guest_stat(path, false, &st) == 0 && st.size > 0))
        emit(watch, WATCH_WRITE, relative);
    return true;
}

static void on_named(struct watch *watch, struct watch_node *node,
                     const struct inotify_event *event)
{
    static const struct {
        unsigned bits;
        enum watch_op op;
    } ops[] = {
        {IN_CREATE | IN_MOVED_TO, WATCH_CREATE},
        {IN_MOVED_FROM, WATCH_RENAME},
        {IN_ATTRIB, WATCH_CHMOD},
        {IN_MODIFY, WATCH_WRITE},
        {IN_DELETE, WATCH_REMOVE},
    };
    struct str name = str_of(event->name);
    bool is_dir = (event->mask & IN_ISDIR) && watch->config.recursive;
    char relative[PATH_MAX];
    bool known = false;

    if (!watch_tree_path(node, name, relative) || on_temp(watch, event, relative))
        return;
    if (event->mask & (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE))
        known = forget_seen(watch, relative) && (event->mask & (IN_CREATE | IN_MOVED_TO));
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if ((event->mask & ops[i].bits) && !(known && ops[i].op == WATCH_CREATE))
            emit(watch, ops[i].op, relative);
    if (!is_dir || watch->dead)
        return;
    if ((event->mask & IN_MOVED_TO) || ((event->mask & IN_CREATE) && !known)) {
        enter(watch, node, name, event->mask);
    } else if (event->mask & IN_MOVED_FROM) {
        struct watch_node *child = watch_tree_child(&watch->tree, node, name);

        if (child) {
            watch_tree_cut(&watch->tree, child, event->cookie);
            list_push_back(&watch->cut, &child->sibling);
        }
    }
}

/* Of the directory itself. Those beneath the root are reported by their parents. */
static void on_self(struct watch *watch, const struct watch_node *node, unsigned mask)
{
    if (node != watch->tree.root)
        return;
    if (mask & IN_MOVE_SELF)
        emit(watch, WATCH_RENAME, ".");
    if (mask & IN_ATTRIB)
        emit(watch, WATCH_CHMOD, ".");
    if (mask & (IN_DELETE_SELF | IN_UNMOUNT))
        emit(watch, WATCH_REMOVE, ".");
}

static void work_off_one(struct watch *watch)
{
    struct inotify_event *event = (void *)(watch->raw.p + watch->raw_at);
    size_t size = sizeof(*event) + event->len;
    struct watch_node *node;

    watch->raw_at += size;
    if (event->mask & IN_Q_OVERFLOW) {
        fail_overflow(watch);
        return;
    }
    node = watch_tree_find(&watch->tree, event->wd);
    if (node && (event->mask & IN_IGNORED))
        remove_node(watch, node, watch->fd);
    else if (node && event->len > 0)
        on_named(watch, node, event);
    else if (node)
        on_self(watch, node, event->mask);
    if (watch->dead || watch->seen.count == 0)
        return;
    watch->seen_left -= size < watch->seen_left ? size : watch->seen_left;
    if (watch->seen_left == 0 && list_empty(&watch->work)) {
        map_done(&watch->seen);
        map_init(&watch->seen);
    }
}

/* Those that did not come back. */
static void drop_cut(struct watch *watch)
{
    struct list *pos;

    while ((pos = list_pop_front(&watch->cut)))
        remove_node(watch, container_of(pos, struct watch_node, sibling), watch->fd);
}

static bool step(struct watch *watch)
{
    if (watch->dir || !list_empty(&watch->work)) {
        look(watch);
    } else if (!watch->ready) {
        watch->ready = true;
        watch->config.on_ready(watch->config.arg);
    } else if (watch->raw_at < watch->raw.len) {
        work_off_one(watch);
    } else {
        return false;
    }
    return true;
}

static void advance(struct watch *watch)
{
    int steps;

    for (steps = 0; steps < TURN_STEPS; steps++) {
        if (steps % DRAIN_STEPS == 0 && !watch->dead)
            drain(watch);
        if (watch->dead)
            return;
        if (!step(watch))
            break;
    }
    if (watch->dead)
        return;
    if (steps == TURN_STEPS)
        (void)uv_idle_start(&watch->turn, on_turn);
    else if (!list_empty(&watch->cut))
        (void)uv_timer_start(&watch->later, on_later, CUT_MS, 0);
}

void watch_catch_up(struct watch *watch)
{
    for (int turn = 0; turn < CATCH_UP_TURNS && !watch->dead; turn++) {
        advance(watch);
        if (!uv_is_active((uv_handle_t *)&watch->turn))
            return;
    }
}

static void on_turn(uv_idle_t *turn)
{
    (void)uv_idle_stop(turn);
    advance(turn->data);
}

static void on_later(uv_timer_t *timer)
{
    struct watch *watch = timer->data;

    drain(watch);
    if (!watch->dead && watch->ready && watch->raw_at == watch->raw.len)
        drop_cut(watch);
    if (!watch->dead)
        advance(watch);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;

    (void)status;
    (void)events;
    if (!watch->dead)
        advance(watch);
}

/* ---- begin and end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;

    if (--watch->handles > 0)
        return;
    close_dir(watch);
    watch_tree_done(&watch->tree);
    map_done(&watch->seen);
    buf_done(&watch->raw);
    free(watch);
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    if (!watch->dead)
        stop(watch);
    uv_close((uv_handle_t *)&watch->poll, on_closed);
    uv_close((uv_handle_t *)&watch->turn, on_closed);
    uv_close((uv_handle_t *)&watch->later, on_closed);
}

static int check_directory(const struct watch_config *config, struct guest_stat *st,
                           struct error *err)
{
    const char *path = config->path;
    int r = guest_stat(path, true, st);

    if (r == -ENOENT || r == -ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "path %s not found", path);
    if (r == -ELOOP)
        return error_set(err, ERROR_INVALID, "path %s is a cyclic symlink", path);
    if (r != 0)
        return error_set_errno(err, -r, "error statting path %s", path);
    if (!S_ISDIR(st->mode))
        return error_set(err, ERROR_INVALID, "path %s not a directory", path);
    if (!config->allow_network && guest_mount_kind(st->mount) == GUEST_MOUNT_NETWORK)
        return error_set(err, ERROR_INVALID, "cannot watch path on network filesystem: %s", path);
    return 0;
}

static int open_instance(const char *path, int *out_wd, struct error *err)
{
    auto_close int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd < 0 && errno == EMFILE)
        return error_set(err, ERROR_QUOTA, "too many watchers or open files");
    if (fd < 0)
        return error_set_errno(err, errno, "error creating watcher");
    *out_wd = inotify_add_watch(fd, path, MASK);
    if (*out_wd < 0 && errno == ENOSPC)
        return error_set(err, ERROR_QUOTA, "too many directories are being watched");
    if (*out_wd < 0)
        return error_set_errno(err, errno, "error adding path %s to watcher", path);
    return take_fd(&fd);
}

struct watch *watch_new(struct loop *loop, const struct watch_config *config, struct error *err)
{
    struct guest_stat st;
    struct watch *watch;
    int wd = -1, fd;

    if (check_directory(config, &st, err) != 0 || (fd = open_instance(config->path, &wd, err)) < 0)
        return NULL;
    watch = xcalloc(1, sizeof(*watch));
    watch->config = *config;
    watch->config.path = NULL;
    (void)str_copy(str_of(config->path), watch->root, sizeof(watch->root));
    for (size_t len = strlen(watch->root); len > 1 && watch->root[len - 1] == '/'; len--)
        watch->root[len - 1] = '\0';
    watch->loop = loop;
    watch->fd = fd;
    watch->handles = 3;
    list_init(&watch->work);
    list_init(&watch->cut);
    map_init(&watch->seen);
    buf_init(&watch->raw, RAW_MAX);
    watch_tree_init(&watch->tree);
    watch_tree_add(&watch->tree, NULL, wd, STR(""))->mount = st.mount;
    if (config->recursive)
        look_into(watch, watch->tree.root, true);
    (void)uv_poll_init(loop_uv(loop), &watch->poll, fd);
    (void)uv_idle_init(loop_uv(loop), &watch->turn);
    (void)uv_timer_init(loop_uv(loop), &watch->later);
    watch->poll.data = watch->turn.data = watch->later.data = watch;
    (void)uv_poll_start(&watch->poll, UV_READABLE, on_readable);
    (void)uv_idle_start(&watch->turn, on_turn);
    return watch;
}
