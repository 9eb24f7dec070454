#include "image/template/images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "domain/secret/registry_login.h"
#include "image/registry/registry.h"
#include "store/platform/store_build.h"

enum { PATH_SIZE = 512 };

struct images {
    struct registry *registry;
    struct store *store;
    const struct secrets *secrets;
    char uploads[PATH_SIZE];
    int64_t keep_s, keep_bytes;
    struct build_images for_builds;
};

/* ---- registries ---- */

static int find_login(struct images *images, const struct build_image_source *source,
                      const struct reference *reference, struct arena *arena,
                      struct registry_login_words *out, struct error *err)
{
    struct registry_login login;
    struct error why = {0};

    *out = (struct registry_login_words){source->username, source->password};
    if (source->password.p)
        return 0;
    if (registry_login_find(images->store, images->secrets, source->team_id,
                            str_of(reference->host), arena, &login, &why) == 0)
        *out = (struct registry_login_words){login.username, login.password};
    else if (why.code != ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    return 0;
}

static struct registry_watch watch_of(const struct build_watch *watch)
{
    if (!watch)
        return (struct registry_watch){0};
    return (struct registry_watch){watch->arg, watch->line, watch->stopped, watch->grow};
}

static void fill(const struct registry_image *image, struct arena *arena, struct build_image *out)
{
    struct build_blob *layers = arena_alloc(arena, image->manifest.layer_count * sizeof(*layers));
    const struct image_settings *settings = &image->settings;

    for (size_t i = 0; i < image->manifest.layer_count; i++)
        layers[i] =
            (struct build_blob){image->manifest.layers[i].digest, image->manifest.layers[i].bytes};
    *out = (struct build_image){
        .digest = image->digest,
        .env = settings->env,
        .env_count = settings->env_count,
        .user = settings->user,
        .workdir = settings->workdir,
        .entrypoint = settings->entrypoint,
        .entrypoint_count = settings->entrypoint_count,
        .cmd = settings->cmd,
        .cmd_count = settings->cmd_count,
        .shell = settings->shell,
        .shell_count = settings->shell_count,
        .layers = layers,
        .layer_count = image->manifest.layer_count,
    };
}

static int resolve_reference(struct images *images, const struct build_image_source *source,
                             const struct build_watch *watch, struct arena *arena,
                             struct build_image *out, struct error *err)
{
    struct registry_watch told = watch_of(watch);
    struct registry_login_words login;
    struct registry_image image;
    struct reference reference;
    char name[sizeof(reference) + 8];

    if (reference_parse(source->reference, &reference, err) < 0 ||
        find_login(images, source, &reference, arena, &login, err) < 0 ||
        registry_resolve(images->registry, &reference, &login, &told, arena, &image, err) < 0)
        return -1;
    fill(&image, arena, out);
    reference_format(&reference, name, sizeof(name));
    out->name = arena_str(arena, str_of(name));
    return 0;
}

/* Whose a blob is that was given for a password. */
static struct str owner_of(struct str team_id, struct arena *arena)
{
    char hex[SHA256_HEX_SIZE];

    sha256_hex(team_id, hex);
    return arena_str(arena, str_n(hex, BLOB_OWNER_LEN));
}

/* out_owner: of what was fetched. */
static int fetch_reference(struct images *images, const struct build_image_source *source,
                           const struct build_image *image, const struct build_watch *watch,
                           struct arena *owners, struct str *out_owner, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct descriptor *blobs = arena_alloc(&arena, image->layer_count * sizeof(*blobs));
    struct registry_watch told = watch_of(watch);
    struct registry_login_words login;
    struct reference reference;

    if (reference_parse(source->reference, &reference, err) < 0 ||
        find_login(images, source, &reference, &arena, &login, err) < 0)
        return -1;
    *out_owner = login.password.p ? owner_of(source->team_id, owners) : STR_NONE;
    for (size_t i = 0; i < image->layer_count; i++)
        blobs[i] = (struct descriptor){image->layers[i].digest, image->layers[i].bytes, *out_owner};
    return registry_fetch(images->registry, &reference, &login, &told, blobs, image->layer_count,
                          err);
}

/* ---- uploads: a client's own blobs, by their digests ---- */

static int upload_path(struct images *images, struct str team_id, struct str digest,
                       char out[PATH_SIZE + 80], struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_build_file file;
    struct str hex = str_skip(digest, sizeof("sha256:") - 1);

    if (!digest_ok(digest))
        return error_set(err, ERROR_INVALID, "'%.*s' is no sha256 digest",
                         (int)(digest.len < 80 ? digest.len : 80), digest.p ? digest.p : "");
    if (store_build_file_find(images->store, team_id, hex, clock_wall_us(), &arena, &file, err) < 0)
        return err->code == ERROR_NOT_FOUND
                   ? error_set(err, ERROR_NOT_FOUND, "the blob %.*s was not uploaded",
                               STR_ARG(digest))
                   : -1;
    /* The name is the client's, the sum is ours. */
    if (!str_eq(file.body, hex))
        return error_set(err, ERROR_INVALID, "what was uploaded is not what the digest %.*s says",
                         STR_ARG(digest));
    (void)snprintf(out, PATH_SIZE + 80, "%s/%.*s", images->uploads, STR_ARG(file.body));
    return 0;
}

static int read_upload(struct images *images, struct str team_id, struct str digest,
                       struct buf *out, struct error *err)
{
    char path[PATH_SIZE + 80];
    int r;

    buf_init(out, MANIFEST_MAX);
    if (upload_path(images, team_id, digest, path, err) < 0)
        return -1;
    r = fd_read_file_at(AT_FDCWD, path, out);
    if (r == -EFBIG)
        return error_set(err, ERROR_LIMIT, "the document %.*s is too long", STR_ARG(digest));
    return r == 0 ? 0 : error_set_errno(err, -r, "cannot read an uploaded blob");
}

static int resolve_blobs(struct images *images, const struct build_image_source *source,
                         struct arena *arena, struct build_image *out, struct error *err)
{
    struct registry_image image = {.digest = arena_str(arena, source->blobs)};
    auto_buf struct buf manifest = {0}, inner = {0}, settings = {0};

    if (read_upload(images, source->team_id, source->blobs, &manifest, err) < 0 ||
        manifest_parse(buf_str(&manifest), STR_NONE, arena, &image.manifest, err) < 0)
        return -1;
    if (image.manifest.is_index) {
        image.digest = image.manifest.chosen.digest;
        if (read_upload(images, source->team_id, image.digest, &inner, err) < 0 ||
            manifest_parse(buf_str(&inner), STR_NONE, arena, &image.manifest, err) < 0)
            return -1;
    }
    if (image.manifest.is_index)
        return error_set(err, ERROR_UNSUPPORTED, "the index leads to another index");
    if (read_upload(images, source->team_id, image.manifest.config.digest, &settings, err) < 0 ||
        image_settings_parse(buf_str(&settings), STR_NONE, image.manifest.layer_count, arena,
                             &image.settings, err) < 0)
        return -1;
    fill(&image, arena, out);
    out->name = image.digest;
    return 0;
}

/* ---- what a build asks ---- */

static int resolve(void *arg, const struct build_image_source *source,
                   const struct build_watch *watch, struct arena *arena, struct build_image *out,
                   struct error *err)
{
    struct images *images = arg;

    if (!source->blobs.p)
        return resolve_reference(images, source, watch, arena, out, err);
    if (resolve_blobs(images, source, arena, out, err) < 0)
        return error_prefix(err, "uploaded image");
    return 0;
}

static int put_in_feed(struct images *images, const struct build_image_source *source,
                       const struct descriptor *blob, const char *path, struct error *err)
{
    char upload[PATH_SIZE + 80];

    if (!source->blobs.p)
        return blobs_link(registry_blobs(images->registry), blob, path, err);
    if (upload_path(images, source->team_id, blob->digest, upload, err) < 0)
        return -1;
    if (link(upload, path) < 0)
        return error_set_errno(err, errno, "cannot link an uploaded blob");
    return 0;
}

static int fetch(void *arg, const struct build_image_source *source,
                 const struct build_image *image, const char *feed_dir,
                 const struct build_watch *watch, struct error *err)
{
    struct images *images = arg;
    auto_arena struct arena arena = {0};
    struct str owner = STR_NONE;
    char path[PATH_SIZE + 80];

    if (!source->blobs.p &&
        fetch_reference(images, source, image, watch, &arena, &owner, err) < 0) {
        /* What came of it stays for the next try, as far as the cache's limit allows. */
        blobs_prune(registry_blobs(images->registry), images->keep_s, images->keep_bytes);
        return -1;
    }
    for (size_t i = 0; i < image->layer_count; i++) {
        const struct descriptor blob = {image->layers[i].digest, image->layers[i].bytes, owner};

        (void)snprintf(path, sizeof(path), "%s/%zu", feed_dir, i);
        if (put_in_feed(images, source, &blob, path, err) < 0)
            return -1;
    }
    blobs_prune(registry_blobs(images->registry), images->keep_s, images->keep_bytes);
    return 0;
}

int images_open(const struct images_config *config, struct images **out, struct error *err)
{
    char blobs[PATH_SIZE];
    struct registry_config registry = {
        .blobs = blobs, .mirrors = config->mirrors, .stall_ms = config->stall_ms};
    struct images *images = xcalloc(1, sizeof(*images));

    (void)snprintf(blobs, sizeof(blobs), "%s/blobs", config->store_dir);
    (void)snprintf(images->uploads, sizeof(images->uploads), "%s/uploads", config->store_dir);
    if (registry_open(&registry, &images->registry, err) < 0) {
        free(images);
        return -1;
    }
    images->store = config->store;
    images->secrets = config->secrets;
    images->keep_s = (config->keep_days ? config->keep_days : 30) * 24 * 3600;
    images->keep_bytes = (config->keep_mb ? config->keep_mb : 20480) * 1024 * 1024;
    images->for_builds = (struct build_images){.arg = images, .resolve = resolve, .fetch = fetch};
    blobs_prune(registry_blobs(images->registry), images->keep_s, images->keep_bytes);
    *out = images;
    return 0;
}

void images_close(struct images *images)
{
    if (!images)
        return;
    registry_close(images->registry);
    free(images);
}

const struct build_images *images_for_builds(struct images *images)
{
    return &images->for_builds;
}
