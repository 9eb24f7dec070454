/* The host side of a data directory: its lock, folders, disk pool, cgroups, network, and the parts
 * every box shares.
 *
 *   DATA/           0711 root: the server may pass through, nobody may list
 *     lock          held by the one warden of this directory
 *     instance      8 hex digits: names of cgroups, links and tables on this host
 *     layers/       0700: read-only layers (hold setuid files)
 *     feeds/        0700, the server's: what it gives to boxes to read, a directory for each
 *     programs/     0755: copies of programs for the server (warden_parts.c)
 *     pool/         0700: writable layers, snapshots, volumes
 *     run/          0711: envds' sockets and records of running boxes
 *     store/        0700, the server's: database */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"
#include "host/engine/engine_wire.h"

enum { LOCK_WAIT_MS = 5000, ENVD_SIZE_MAX = 64 << 20, FILES_MAX = 1 << 20 };

/* A warden that was just killed may take a moment to disappear, with its server. */
static int take_lock(struct warden *warden, int data_fd, struct error *err)
{
    int64_t deadline = clock_mono_ms() + LOCK_WAIT_MS;

    warden->lock_fd = openat(data_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (warden->lock_fd < 0)
        return error_set_errno(err, errno, "open '%s/lock'", warden->config->data_dir);
    while (flock(warden->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set_errno(err, errno, "lock '%s'", warden->config->data_dir);
        if (clock_mono_ms() > deadline)
            return error_set(err, ERROR_CONFLICT,
                             "another server uses '%s'; stop it or choose another --data",
                             warden->config->data_dir);
        (void)usleep(20000);
    }
    return 0;
}

static int read_instance(struct warden *warden, int data_fd, struct error *err)
{
    auto_buf struct buf text = {0};
    auto_close int fd = -1;

    buf_init(&text, 64);
    if (fd_read_file_at(data_fd, "instance", &text) == 0 && text.len == 8 &&
        strspn(text.p, "0123456789abcdef") == 8) {
        memcpy(warden->instance, text.p, 9);
        return 0;
    }
    id_hex(warden->instance, 4);
    fd = openat(data_fd, "instance", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || fd_write_full(fd, warden->instance, 8) < 0 || fsync(fd) < 0)
        return error_set_errno(err, errno, "write '%s/instance'", warden->config->data_dir);
    return 0;
}

static int make_folder(int data_fd, const char *name, mode_t mode, uid_t owner, struct error *err)
{
    if ((mkdirat(data_fd, name, mode) < 0 && errno != EEXIST) ||
        fchmodat(data_fd, name, mode, 0) < 0 || fchownat(data_fd, name, owner, owner, 0) < 0)
        return error_set_errno(err, errno, "make folder '%s'", name);
    return 0;
}

static int make_folders(struct warden *warden, int data_fd, struct error *err)
{
    uid_t server = warden->config->server_uid;

    if (fchmod(data_fd, 0711) < 0)
        return error_set_errno(err, errno, "set the mode of '%s'", warden->config->data_dir);
    if (make_folder(data_fd, "layers", 0700, 0, err) < 0 ||
        make_folder(data_fd, "run", 0711, 0, err) < 0 ||
        make_folder(data_fd, "feeds", 0700, server, err) < 0 ||
        make_folder(data_fd, WARDEN_PARTS_DIR, 0755, 0, err) < 0 ||
        make_folder(data_fd, "store", 0700, server, err) < 0)
        return -1;
    warden->boxes.layers_fd = openat(data_fd, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    warden->boxes.run_fd = openat(data_fd, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    warden->boxes.feeds_fd = openat(data_fd, "feeds", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (warden->boxes.layers_fd < 0 || warden->boxes.run_fd < 0 || warden->boxes.feeds_fd < 0)
        return error_set_errno(err, errno, "open the folders of '%s'", warden->config->data_dir);
    return 0;
}

/* A layer that lives elsewhere is bound by a link in a folder only root can write to. */
static int link_base_layer(struct warden *warden, struct error *err)
{
    const char *base = warden->config->base_layer;

    if (!base)
        return 0;
    (void)unlinkat(warden->boxes.layers_fd, "base", 0);
    if (symlinkat(base, warden->boxes.layers_fd, "base") < 0)
        return error_set_errno(err, errno, "use '%s' as the base layer", base);
    return 0;
}

static int probe(struct boxes *boxes, struct error *err)
{
    bool base = faccessat(boxes->layers_fd, "base", F_OK, 0) == 0;

    return box_overlay_probe(&(struct box_probe){.layers_fd = boxes->layers_fd,
                                                 .layer = base ? "base" : ".",
                                                 .other_fd = boxes->run_fd},
                             &boxes->attach_layers, err);
}

int warden_probe(const char *layers_dir, struct error *err)
{
    auto_close int layers = open(layers_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_close int other = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool attach;

    if (layers < 0 || other < 0)
        return error_set_errno(err, errno, "open '%s'", layers < 0 ? layers_dir : "/etc");
    return box_overlay_probe(
        &(struct box_probe){.layers_fd = layers, .layer = ".", .other_fd = other}, &attach, err);
}

/* envd's program in a sealed memfd: nothing inside a sandbox can change it through
 * /proc/PID/exe, and all sandboxes share its pages. It can be executed and not read: so the kernel lets nobody
 * inside, not even root, trace envd, read its memory or take its descriptors. */
static int load_envd(struct warden *warden, struct error *err)
{
    const char *path = warden->config->envd_path;
    auto_close int file = open(path, O_RDONLY | O_CLOEXEC);
    auto_close int fd = memfd_create("envd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat st;
    off_t offset = 0;

    if (file < 0 || fd < 0 || fstat(file, &st) < 0)
        return error_set_errno(err, errno, "open envd '%s'", path);
    if (st.st_size <= 0 || st.st_size > ENVD_SIZE_MAX)
        return error_set(err, ERROR_INVALID, "'%s' is no envd", path);
    while (offset < st.st_size) {
        ssize_t n = copy_file_range(file, &offset, fd, NULL, (size_t)(st.st_size - offset), 0);

        if (n <= 0)
            break;
    }
    while (offset < st.st_size) {
        char part[65536];
        ssize_t n = pread(file, part, sizeof(part), offset);

        if (n <= 0 || fd_write_full(fd, part, (size_t)n) < 0)
            return error_set_errno(err, errno, "read envd '%s'", path);
        offset += n;
    }
    if (fchmod(fd, 0111) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set_errno(err, errno, "seal envd");
    warden->boxes.envd_fd = take_fd(&fd);
    return 0;
}

/* A host that cannot have one runs sandboxes that ask for none. */
static int open_network(struct warden *warden, struct error *err)
{
    struct error why;

    if (network_probe(&why) == 0)
        return network_open(&warden->network, &warden->boxes.network, err);
    log_error("warden",
              "%s: nothing of a network can be enforced here, so sandboxes that ask for one are "
              "refused, also those that ask for nothing special. 'allow_internet_access: false' "
              "works; 'quicksand doctor' says what to do",
              why.message);
    (void)setenv(WARDEN_NO_NETWORK_ENV, why.message, 1);
    return 0;
}

static int open_shared(struct warden *warden, struct error *err)
{
    struct boxes *boxes = &warden->boxes;
    struct disk_config disk = {.data_dir = warden->config->data_dir,
                               .only_to_unmount = warden->going_down};
    struct native_config native = {.instance = warden->instance,
                                   .resolvers = warden->config->resolvers,
                                   .resolver_count = warden->config->resolver_count,
                                   .going_down = warden->going_down};

    warden->network = (struct network_config){.instance = warden->instance,
                                              .run_dir = warden->run_dir,
                                              .resolvers = warden->config->resolvers,
                                              .resolver_count = warden->config->resolver_count,
                                              .private_ranges = warden->config->private_ranges,
                                              .private_count = warden->config->private_count,
                                              .manage_firewall = warden->config->manage_firewall,
                                              .rates = warden->config->rates,
                                              .team_rates = warden->config->team_rates};
    if (load_envd(warden, err) < 0 || native_open(boxes, &native, err) < 0 ||
        disk_open(&disk, &warden->disk, err) < 0 ||
        trees_open(boxes->layers_fd, &warden->trees, err) < 0 || open_network(warden, err) < 0)
        return -1;
    boxes->disk = warden->disk;
    boxes->trees = warden->trees;
    if (boxes_recover(boxes, err) < 0)
        return -1;
    boxes_end_fillers(boxes);
    return 0;
}

/* Two descriptors for each box here, and one for each connection in the server, which inherits this. What
 * hosts give a program at first is 1024, but they allow more. */
static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        log_warn("warden", "cannot raise the limit of open files: errno %d; ignoring", errno);
}

static void init(struct warden *warden)
{
    struct boxes *boxes = &warden->boxes;

    warden->lock_fd = -1;
    (void)pthread_mutex_init(&warden->lock, NULL);
    (void)pthread_mutex_init(&warden->volume_lock, NULL);
    cond_init(&warden->channel_ended);
    list_init(&warden->channels);
    native_init(boxes);
    boxes->run_dir = warden->run_dir;
    boxes->server_uid = warden->config->server_uid;
    boxes->volume_lock = &warden->volume_lock;
    warden_engine_add(warden, &boxes->engine);
}

int warden_open_host(struct warden *warden, struct error *err)
{
    const char *data = warden->config->data_dir;
    struct boxes *boxes = &warden->boxes;
    auto_close int data_fd = -1;
    int r = path_make_dirs(data, 0711);

    init(warden);
    raise_file_limit();
    if (r < 0)
        return error_set_errno(err, -r, "make the data directory '%s'", data);
    data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (data_fd < 0)
        return error_set_errno(err, errno, "open the data directory '%s'", data);
    (void)snprintf(warden->run_dir, sizeof(warden->run_dir), "%s/run", data);
    if (strlen(warden->run_dir) + ID_LEN + 7 > ENGINE_SOCKET_PATH_SIZE)
        return error_set(err, ERROR_INVALID,
                         "the data directory's path is too long for Unix sockets (%zu, at most %d)",
                         strlen(data), ENGINE_SOCKET_PATH_SIZE - ID_LEN - 11);
    if (take_lock(warden, data_fd, err) < 0 || read_instance(warden, data_fd, err) < 0 ||
        make_folders(warden, data_fd, err) < 0 || warden_install_parts(warden, data_fd, err) < 0 ||
        link_base_layer(warden, err) < 0)
        return -1;
    /* Before there is anything on the host that would have to go again. */
    if (!warden->going_down && probe(boxes, err) < 0)
        return -1;
    return open_shared(warden, err);
}

/* A copy of the mount in somebody else's mount namespace keeps the pool's device busy. No sandbox
 * does: our mount goes, and the device clears itself when the last copy is gone. */
static int unmount_disk(const struct warden *warden, struct error *err)
{
    struct disk_config disk = {.data_dir = warden->config->data_dir};
    char pool[WARDEN_PATH_SIZE];

    if (disk_unmount(&disk, err) == 0)
        return 0;
    (void)snprintf(pool, sizeof(pool), "%s/pool", warden->config->data_dir);
    return err->code == ERROR_CONFLICT && umount2(pool, MNT_DETACH) == 0 ? 0 : -1;
}

void warden_close_host(struct warden *warden, bool remove)
{
    struct boxes *boxes = &warden->boxes;
    struct error err;

    if (!list_empty(&warden->channels)) {
        log_error("warden", "channels are still served");
        abort();
    }
    /* A root that is still there would be a user of the pool. */
    box_close_wait();
    if (boxes->network)
        network_close(boxes->network);
    if (warden->disk)
        disk_close(warden->disk);
    if (warden->trees)
        trees_close(warden->trees);
    if (remove) {
        if (boxes->network && network_destroy(&warden->network, &err) < 0)
            log_warn("warden", "%s; ignoring", err.message);
        if (unmount_disk(warden, &err) < 0)
            log_warn("warden", "%s; ignoring", err.message);
    }
    native_close(boxes, remove);
    close_fd(&warden->lock_fd);
}
