/* The base template's layer: made once, by a script that is part of this program, in a folder of its
 * own, and put in place by a rename, so that a half-made one is never used. */
#include "quicksand/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"
#include "host/warden/warden.h"
#include "quicksand/make_base_template.h"

/* The script runs from a memfd: nothing on disk can be swapped under root's feet. */
static int run_script(const char *out_dir, struct error *err)
{
    auto_close int fd = memfd_create("make_base_template", 0);
    char script[32];
    const char *argv[] = {"bash", script, out_dir, NULL};
    int status;

    if (fd < 0 || fd_write_full(fd, make_base_template, sizeof(make_base_template) - 1) < 0)
        return error_set_errno(err, errno, "prepare the template script");
    (void)snprintf(script, sizeof(script), "/proc/self/fd/%d", fd);
    status = process_run(&(struct process_spec){.argv = argv, .path = "/bin/bash"}, 0);
    if (status < 0)
        return error_set_errno(err, -status, "run bash");
    if (status)
        return error_set(err, ERROR_INTERNAL,
                         "making the base template failed; the lines above say why");
    return 0;
}

int base_layer_ensure(const struct config *config, struct error *err)
{
    char layers[CONFIG_TEXT_SIZE + 32], final[CONFIG_TEXT_SIZE + 64], made[CONFIG_TEXT_SIZE + 64];
    struct stat st;
    int r;

    if (config->base_layer[0]) {
        if (stat(config->base_layer, &st) < 0 || !S_ISDIR(st.st_mode))
            return error_set(err, ERROR_NOT_FOUND, "--base-layer '%s' is not a directory",
                             config->base_layer);
        return 0;
    }
    (void)snprintf(layers, sizeof(layers), "%s/layers", config->data);
    (void)snprintf(final, sizeof(final), "%s/base", layers);
    (void)snprintf(made, sizeof(made), "%s/base.making", layers);
    /* A link is left by an earlier run with --base-layer: follow it only if it still leads somewhere. */
    if (stat(final, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    (void)unlink(final);
    r = path_make_dirs(config->data, 0711);
    if (r == 0)
        r = path_make_dirs(layers, 0700);
    if (r == 0)
        r = path_remove_tree(AT_FDCWD, made);
    if (r < 0)
        return error_set_errno(err, -r, "prepare '%s'", layers);
    if (warden_probe(layers, err) < 0)
        return -1;
    (void)printf("making the base template (once; a few minutes)\n");
    (void)fflush(stdout);
    if (run_script(made, err) < 0)
        return -1;
    (void)snprintf(layers, sizeof(layers), "%s/rootfs", made);
    if (rename(layers, final) < 0)
        return error_set_errno(err, errno, "put the base template in place");
    (void)path_remove_tree(AT_FDCWD, made);
    return 0;
}
