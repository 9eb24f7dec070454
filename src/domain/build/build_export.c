/* The files of a template or snapshot as one layer of an image, read by a box that starts from it and runs nothing else.
 *
 * An export waits in the queue of builds and is run by one of their threads, so that it counts as a build of its team. The
 * caller waits for it and owns it (builds_run()). */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "domain/build/build_internal.h"
#include "domain/template/template.h"

struct export
{
    struct build build;
    struct str layers;
    int fd;
    int result;
    struct error err;
};

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

static void export_run(struct build *build)
{
    struct export *export = container_of(build, struct export, build);

    export->fd = files_spool(build->all, &export->err);
    export->result = export->fd < 0 ? -1 : pack(build, export->layers, export->fd, &export->err);
}

int build_export(struct builds *all, struct str team_id, struct str name,
                 const struct cancel *cancel, int *out_fd, int64_t *out_bytes,
                 struct spool_charge *out_charge, struct error *err)
{
    struct export export = {.build = {.all = all, .run = export_run}, .fd = -1};
    auto_close int fd = -1;
    struct store_template row;
    struct stat st = {0};
    int r;

    if (template_find(all->config.store, team_id, name, &export.build.arena, &row, err) < 0) {
        arena_done(&export.build.arena);
        return -1;
    }
    export.build.row.team_id = team_id;
    spool_charge_open(&export.build.charge, all->config.spool, team_id);
    export.layers = row.layers;
    log_open(&export.build.log, all->config.store, STR(""));
    r = builds_run(all, &export.build, cancel, err);
    if (r == 0 && export.result < 0) {
        *err = export.err;
        r = -1;
    }
    log_close(&export.build.log);
    arena_done(&export.build.arena);
    fd = export.fd;
    if (r == 0 && fstat(fd, &st) < 0)
        r = error_set(err, ERROR_INTERNAL, "look at what was packed");
    if (r < 0) {
        spool_release(&export.build.charge);
        return -1;
    }
    *out_charge = export.build.charge;
    *out_bytes = st.st_size;
    *out_fd = take_fd(&fd);
    return 0;
}
