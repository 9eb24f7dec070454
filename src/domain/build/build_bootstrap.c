/* A release of Debian, made of its packages (bootstrap.sh says how). One box, of the base and with a network, fetches them and
 * lays out a tree in which programs run; another, whose root that is and which has no network, installs them there and
 * fills the tree that stays. What is in it depends on nothing that a team says but the release's name, so all teams share it.
 *
 * It stays as it is, also when the mirror has newer packages, until somebody builds with `force` or nobody uses it any more. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "domain/build/build_bootstrap_script.h"
#include "domain/build/build_internal.h"
#include "store/platform/store_event.h"

enum { KEYRING_MAX = 1024 * 1024 };

#define GENERATION     "1" /* another one: releases are made again */
#define DEBIAN_KEYRING "/usr/share/keyrings/debian-archive-keyring.gpg"

/* ---- the configuration ---- */

/* Goes into a line of apt's sources, where blanks and brackets mean something. */
static bool is_url(struct str url)
{
    static const char marks[] = ":/.-_~%+@";

    if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return false;
    for (size_t i = 0; i < url.len; i++) {
        char c = url.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) &&
            !memchr(marks, c, sizeof(marks) - 1))
            return false;
    }
    return true;
}

static int check_mirror(const char *setting, const char *url, struct error *err)
{
    return !url[0] || is_url(str_of(url))
               ? 0
               : error_set(err, ERROR_INVALID,
                           "%s must be the URL of an archive of Debian (http:// or https://), "
                           "not '%s'",
                           setting, url);
}

/* apt tells by a file's name which of the two kinds it is. */
static const char *keyring_name(struct str keys)
{
    return str_starts(keys, STR("-----BEGIN")) ? "keyring.asc" : "keyring.gpg";
}

static int copy_keyring(struct builds *all, struct error *err)
{
    const char *path = all->config.packages.keyring;
    auto_free char *copy = NULL;
    auto_buf struct buf keys = {0};
    auto_close int fd = -1;
    struct key_maker *maker;
    int r;

    buf_init(&keys, KEYRING_MAX);
    r = fd_read_file_at(AT_FDCWD, path, &keys);
    if (r < 0)
        return error_set_errno(err, -r, "package-keyring: read '%s'", path);
    all->keyring.name = keyring_name(buf_str(&keys));
    copy = xasprintf("%s/%s", all->feeds, all->keyring.name);
    fd = open(copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    r = fd < 0 ? -errno : fd_write_full(fd, keys.p, keys.len);
    if (r < 0)
        return error_set_errno(err, -r, "package-keyring: write '%s'", copy);
    maker = key_new("keyring");
    key_add(maker, buf_str(&keys));
    key_take(maker, all->keyring.sum);
    return 0;
}

int bootstrap_open(struct builds *all, struct error *err)
{
    if (check_mirror("package-mirror", all->config.packages.mirror, err) < 0 ||
        check_mirror("package-security", all->config.packages.security, err) < 0)
        return -1;
    return all->config.packages.keyring[0] ? copy_keyring(all, err) : 0;
}

/* ---- making one ---- */

static int give_keyring(const struct build_box *box, struct error *err)
{
    const struct builds *all = box->build->all;
    char path[512];

    if (!all->keyring.name)
        return 0;
    (void)snprintf(path, sizeof(path), "%s/%s", all->feeds, all->keyring.name);
    return build_box_feed_link(box, path, all->keyring.name, err);
}

static const char *keyring_inside(struct stage *stage)
{
    const char *name = stage->build->all->keyring.name;

    return name ? arena_printf(&stage->arena, "/run/feed/%s", name) : DEBIAN_KEYRING;
}

static int run_fetch(struct stage *stage, struct build_box *box, const char *release,
                     struct error *err)
{
    const struct build_packages *packages = &stage->build->all->config.packages;
    const char *const argv[] = {"/bin/bash",
                                "-c",
                                (const char *)bootstrap_script,
                                "bootstrap",
                                "fetch",
                                release,
                                packages->mirror,
                                packages->security,
                                keyring_inside(stage),
                                arena_printf(&stage->arena, "%lld", (long long)packages->stall_s),
                                NULL};

    return fill_run(stage, box, argv, "bootstrap", err);
}

static int fetch_release(struct stage *stage, const char *release, const char *name,
                         struct error *err)
{
    struct build_box_wants wants = {.fill = name, .feed = true, .internet = true};
    struct build_box box = {0};
    int r;

    if (fill_base(stage, &wants.layers, err) < 0 || build_box_prepare(&box, stage->build, err) < 0)
        return -1;
    r = give_keyring(&box, err) < 0 || build_box_open(&box, stage->build, &wants, err) < 0 ||
                run_fetch(stage, &box, release, err) < 0
            ? -1
            : 0;
    build_box_close(&box);
    return r;
}

static int install_release(struct stage *stage, const char *from, const char *name,
                           struct error *err)
{
    const char *const argv[] = {"/bin/bash", "-c",      (const char *)bootstrap_script,
                                "bootstrap", "install", NULL};
    struct build_box_wants wants = {.layers = str_of(from), .fill = name, .feed = true};
    struct build_box box = {0};
    int r;

    if (build_box_prepare(&box, stage->build, err) < 0)
        return -1;
    r = build_box_open(&box, stage->build, &wants, err) < 0 ||
                fill_run(stage, &box, argv, "bootstrap", err) < 0 ||
                fill_provision(stage, &box, err) < 0
            ? -1
            : 0;
    build_box_close(&box);
    return r;
}

static int fill_release(struct stage *stage, const char *release, const char *first,
                        const char *name, const char *key, struct error *err)
{
    int64_t bytes = 0;

    if (fetch_release(stage, release, first, err) < 0 || fill_seal(stage, first, &bytes, err) < 0 ||
        install_release(stage, first, name, err) < 0 || fill_seal(stage, name, &bytes, err) < 0)
        return -1;
    return cache_put(stage->build, key, str_of(name), STR_NONE, bytes, err);
}

/* Two trees, of which the second stays. */
static int make_release(struct stage *stage, const char *release, const char *key,
                        struct str *out_layers, struct error *err)
{
    char first[LAYER_NAME_SIZE], name[LAYER_NAME_SIZE];
    int r;

    if (layer_new(stage->build, "tree", first, err) < 0)
        return -1;
    r = layer_new(stage->build, "tree", name, err);
    if (r == 0 && fill_release(stage, release, first, name, key, err) < 0) {
        layer_drop(stage->build, name);
        r = -1;
    }
    layer_drop(stage->build, first);
    return r < 0 ? -1 : fill_take(stage, name, out_layers, err);
}

static void make_key(const struct builds *all, struct str release, char out[KEY_SIZE])
{
    struct key_maker *maker = key_new("bootstrap " GENERATION);

    key_add(maker, release);
    key_add(maker, str_of(all->config.packages.mirror));
    key_add(maker, str_of(all->config.packages.security));
    key_add(maker, str_of(all->keyring.sum));
    key_take(maker, out);
}

static int find_or_make(struct stage *stage, struct str release, const char *key,
                        struct str *out_layers, struct error *err)
{
    struct build *build = stage->build;
    int64_t began_us = clock_mono_us();
    struct store_cached cached;
    bool found = false;
    struct box_spec pin;

    if (!build->recipe.force &&
        cache_find(build, key, &stage->arena, &cached, &pin, &found, err) < 0)
        return -1;
    log_line(&build->log, STORE_LEVEL_INFO, BASE_STEP, "%s[base] FROM bootstrap://debian:%.*s [%s]",
             found ? "CACHED " : "", STR_ARG(release), build->all->config.packages.mirror);
    if (found) {
        *out_layers = cached.layers;
        stage_keep(stage, &pin);
        return 0;
    }
    if (make_release(stage, arena_str(&stage->arena, release).p, key, out_layers, err) < 0)
        return -1;
    log_line(&build->log, STORE_LEVEL_INFO, BASE_STEP, "[base] debian:%.*s is there after %.1f s",
             STR_ARG(release), (double)(clock_mono_us() - began_us) / 1e6);
    return 0;
}

int bootstrap_tree(struct stage *stage, struct str *out_layers, struct error *err)
{
    struct build *build = stage->build;
    struct str release = stage->recipe->from_name;
    struct build_turn turn;
    char key[KEY_SIZE];
    int r;

    (void)str_split(&release, ':');
    if (!build->all->config.packages.mirror[0])
        return error_set(err, ERROR_UNSUPPORTED,
                         "this server bootstraps no releases: its package-mirror is empty");
    make_key(build->all, release, key);
    if (turn_take(build, key, &turn, err) < 0)
        return -1;
    r = find_or_make(stage, release, key, out_layers, err);
    turn_give(build, &turn);
    return r;
}
