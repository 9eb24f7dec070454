/* The files of a template or snapshot as one layer of an image, read by a box that starts from it and runs nothing else. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/build/build_internal.h"
#include "domain/template/template.h"

static int pack(struct build *build, struct str layers, int fd, struct error *err)
{
    static const char *const argv[] = {"/run/feed/unpack", "pack", "--gzip", "--image", "/", NULL};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = fd};
    struct build_box box = {0};
    int r;

    if (build_box_prepare(&box, build, err) < 0)
        return -1;
    r = build_box_open(&box, build, &(struct build_box_wants){.layers = layers, .feed = true}, err);
    if (r == 0)
        r = build_box_must(&box, &command, "read the template's files", err);
    build_box_close(&box);
    return r;
}

int build_export(struct builds *all, struct str team_id, struct str name, int *out_fd,
                 int64_t *out_bytes, struct spool_charge *out_charge, struct error *err)
{
    struct build build = {.all = all};
    auto_close int fd = -1;
    struct store_template row;
    struct stat st;
    int r;

    if (template_find(all->config.store, team_id, name, &build.arena, &row, err) < 0) {
        arena_done(&build.arena);
        return -1;
    }
    build.row.team_id = team_id;
    spool_charge_open(&build.charge, all->config.spool, team_id);
    build.deadline_us = clock_mono_us() + all->config.timeout_s * 1000 * 1000;
    log_open(&build.log, all->config.store, STR(""));
    fd = files_spool(all, err);
    r = fd < 0 ? -1 : pack(&build, row.layers, fd, err);
    log_close(&build.log);
    arena_done(&build.arena);
    if (r == 0 && fstat(fd, &st) < 0)
        r = error_set(err, ERROR_INTERNAL, "look at what was packed");
    if (r < 0) {
        spool_release(&build.charge);
        return -1;
    }
    *out_charge = build.charge;
    *out_bytes = st.st_size;
    *out_fd = take_fd(&fd);
    return 0;
}
