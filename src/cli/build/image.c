#include "cli/build/image.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/path.h"
#include "cli/build/upload.h"
#include "protocol/json/json_shape.h"

enum { CHUNK_SIZE = 256 * 1024, NESTING_MAX = 4 };

/* ---- an archive becomes a directory ---- */

static int save_file(struct archive *in, struct archive_entry *entry, int dir, struct error *err)
{
    const char *name = archive_entry_pathname(entry), *slash;
    auto_close int fd = -1;

    if (!name || name[0] == '/' || strstr(name, ".."))
        return error_set(err, ERROR_INVALID, "the archive has a file '%.100s'", name ? name : "");
    slash = strchr(name, '/');
    for (; slash; slash = strchr(slash + 1, '/')) {
        auto_free char *folder = xstrndup(name, (size_t)(slash - name));

        if (mkdirat(dir, folder, 0700) < 0 && errno != EEXIST)
            return error_set_errno(err, errno, "'%s'", folder);
    }
    if (archive_entry_filetype(entry) == AE_IFLNK)
        return symlinkat(archive_entry_symlink(entry), dir, name) < 0
                   ? error_set_errno(err, errno, "'%s'", name)
                   : 0;
    if (archive_entry_filetype(entry) != AE_IFREG)
        return 0;
    fd = path_open_in_root(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, -fd, "'%s'", name);
    if (archive_read_data_into_fd(in, fd) != ARCHIVE_OK)
        return error_set(err, ERROR_INVALID, "'%s': %s", name, archive_error_string(in));
    return 0;
}

static int unpack(struct image *image, const char *path, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    struct archive *in = archive_read_new();
    struct archive_entry *entry;
    int rc = 0, r = ARCHIVE_OK;

    image->scratch = xasprintf("%s/quicksand-image-XXXXXX", folder && folder[0] ? folder : "/tmp");
    if (!mkdtemp(image->scratch)) {
        (void)archive_read_free(in);
        free(take_ptr(&image->scratch));
        return error_set_errno(err, errno, "a directory for the image");
    }
    image->dir = open(image->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)archive_read_support_filter_all(in);
    (void)archive_read_support_format_tar(in);
    if (archive_read_open_filename(in, path, CHUNK_SIZE) != ARCHIVE_OK)
        rc = error_set(err, ERROR_INVALID, "'%s': %s", path, archive_error_string(in));
    while (rc == 0 && (r = archive_read_next_header(in, &entry)) >= ARCHIVE_WARN &&
           r != ARCHIVE_EOF)
        rc = save_file(in, entry, image->dir, err);
    if (rc == 0 && r != ARCHIVE_EOF)
        rc = error_set(err, ERROR_INVALID, "'%s': %s", path, archive_error_string(in));
    (void)archive_read_free(in);
    return rc;
}

/* ---- reading it ---- */

static int read_json(const struct image *image, const char *name, json_t **out, struct error *err)
{
    auto_close int fd = path_open_in_root(image->dir, name, O_RDONLY, 0);
    auto_buf struct buf text = {0};
    int rc = fd;

    buf_init(&text, IMAGE_JSON_MAX);
    if (fd >= 0) {
        char self[32];

        (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        rc = fd_read_file_at(AT_FDCWD, self, &text);
    }
    if (rc < 0)
        return error_set_errno(err, -rc, "'%s' of the image", name);
    return json_parse(buf_str(&text), out, err) < 0 ? error_prefix(err, "'%s' of the image", name)
                                                    : 0;
}

static struct image_blob *add_blob(struct image *image, struct error *err)
{
    if (!image->blobs)
        image->blobs = xcalloc(IMAGE_BLOBS_MAX, sizeof(*image->blobs));
    if (image->count < IMAGE_BLOBS_MAX)
        return &image->blobs[image->count++];
    (void)error_set(err, ERROR_LIMIT, "the image has more than %d blobs", IMAGE_BLOBS_MAX);
    return NULL;
}

/* "sha256:HEX" of a descriptor. */
static int add_described(struct image *image, const json_t *descriptor, struct error *err)
{
    struct str digest = json_get_str(descriptor, "digest");
    struct image_blob *blob = add_blob(image, err);

    if (!blob)
        return -1;
    if (!str_starts(digest, STR("sha256:")) || digest.len != 71 || str_find(digest, '/') >= 0 ||
        !str_copy(str_skip(digest, 7), blob->hash, 65))
        return error_set(err, ERROR_INVALID, "the image has a blob that is not named by sha256");
    blob->path = arena_printf(&image->arena, "blobs/sha256/%s", blob->hash);
    return 0;
}

static bool is_ours(const json_t *descriptor)
{
    const json_t *platform = json_object_get(descriptor, "platform");
    struct utsname host;
    const char *arch;

    if (!platform || uname(&host) < 0)
        return true;
    arch = strcmp(host.machine, "x86_64") == 0    ? "amd64"
           : strcmp(host.machine, "aarch64") == 0 ? "arm64"
                                                  : host.machine;
    return str_is(json_get_str(platform, "architecture"), arch) &&
           str_is(json_get_str(platform, "os"), "linux");
}

/* The one manifest of an index, or of an index in it. */
static int find_manifest(const struct image *image, const char *file, int depth, char hash[65],
                         struct error *err)
{
    auto_json json_t *json = NULL;
    const json_t *list, *found = NULL;
    struct str digest;

    if (read_json(image, file, &json, err) < 0)
        return -1;
    list = json_object_get(json, "manifests");
    if (!list)
        return hash[0] ? 0 : error_set(err, ERROR_INVALID, "the image has no manifest");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_ours(json_array_get(list, i))) {
            if (found)
                return error_set(err, ERROR_INVALID,
                                 "it holds several images for this machine; save only one");
            found = json_array_get(list, i);
        }
    digest = json_get_str(found, "digest");
    if (!str_starts(digest, STR("sha256:")) || !str_copy(str_skip(digest, 7), hash, 65) ||
        strchr(hash, '/') || depth == NESTING_MAX)
        return error_set(err, ERROR_INVALID, "it holds no image for this machine");
    return find_manifest(
        image, arena_printf((struct arena *)(uintptr_t)&image->arena, "blobs/sha256/%s", hash),
        depth + 1, hash, err);
}

static int read_layout(struct image *image, struct error *err)
{
    auto_json json_t *manifest = NULL, *self = NULL;
    char hash[65] = "";
    const json_t *layers;

    if (find_manifest(image, "index.json", 0, hash, err) < 0)
        return -1;
    (void)snprintf(image->digest, sizeof(image->digest), "sha256:%s", hash);
    self = json_pack("{s:s}", "digest", image->digest);
    if (add_described(image, self, err) < 0 ||
        read_json(image, image->blobs[0].path, &manifest, err) < 0 ||
        add_described(image, json_object_get(manifest, "config"), err) < 0)
        return -1;
    layers = json_object_get(manifest, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (add_described(image, json_array_get(layers, i), err) < 0)
            return -1;
    return 0;
}

/* ---- what `docker save` writes: names instead of digests ---- */

static int hash_file(const struct image *image, const char *path, char hash[65], int64_t *out_size,
                     bool *out_gzip, struct error *err)
{
    auto_close int fd = path_open_in_root(image->dir, path, O_RDONLY, 0);
    auto_free unsigned char *bytes = xmalloc(CHUNK_SIZE);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char digest[32];
    ssize_t n;

    *out_size = 0;
    *out_gzip = false;
    (void)EVP_DigestInit_ex(context, EVP_sha256(), NULL);
    while (fd >= 0 && (n = read(fd, bytes, CHUNK_SIZE)) > 0) {
        if (*out_size == 0)
            *out_gzip = n > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
        (void)EVP_DigestUpdate(context, bytes, (size_t)n);
        *out_size += n;
    }
    (void)EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
    hex_encode(hash, digest, sizeof(digest));
    return fd < 0 ? error_set_errno(err, -fd, "'%s' of the image", path) : 0;
}

static json_t *describe(struct image *image, const json_t *name, bool is_config, struct error *err)
{
    struct image_blob *blob = add_blob(image, err);
    int64_t size;
    bool gzip;

    if (!blob)
        return NULL;
    if (!json_is_string(name)) {
        (void)error_set(err, ERROR_INVALID, "manifest.json of the image names no file");
        return NULL;
    }
    blob->path = arena_printf(&image->arena, "%s", json_string_value(name));
    if (hash_file(image, blob->path, blob->hash, &size, &gzip, err) < 0)
        return NULL;
    return json_pack("{s:s,s:o,s:I}", "mediaType",
                     is_config ? "application/vnd.oci.image.config.v1+json"
                     : gzip    ? "application/vnd.oci.image.layer.v1.tar+gzip"
                               : "application/vnd.oci.image.layer.v1.tar",
                     "digest", json_sprintf("sha256:%s", blob->hash), "size", (json_int_t)size);
}

static int add_text(struct image *image, struct str text, struct error *err)
{
    struct image_blob *blob = add_blob(image, err);
    unsigned char digest[32];

    if (!blob)
        return -1;
    blob->text = arena_str(&image->arena, text);
    (void)EVP_Digest(text.p, text.len, digest, NULL, EVP_sha256(), NULL);
    hex_encode(blob->hash, digest, sizeof(digest));
    return 0;
}

/* The manifest that it would have as an OCI image. */
static int add_manifest(struct image *image, const json_t *json, struct error *err)
{
    auto_free char *text = json_text(json);

    if (add_text(image, str_of(text), err) < 0)
        return -1;
    (void)snprintf(image->digest, sizeof(image->digest), "sha256:%s",
                   image->blobs[image->count - 1].hash);
    return 0;
}

static int read_saved(struct image *image, struct error *err)
{
    auto_json json_t *saved = NULL, *manifest = NULL;
    const json_t *one, *layers;
    json_t *part;

    if (read_json(image, "manifest.json", &saved, err) < 0)
        return error_set(err, ERROR_INVALID,
                         "it is neither an OCI layout nor what 'docker save' writes");
    if (json_array_size(saved) != 1)
        return error_set(err, ERROR_INVALID, "it holds %zu images; save only one",
                         json_array_size(saved));
    one = json_array_get(saved, 0);
    layers = json_object_get(one, "Layers");
    part = describe(image, json_object_get(one, "Config"), true, err);
    if (!part)
        return -1;
    manifest = json_pack("{s:i,s:s,s:o,s:[]}", "schemaVersion", 2, "mediaType",
                         "application/vnd.oci.image.manifest.v1+json", "config", part, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        part = describe(image, json_array_get(layers, i), false, err);
        if (!part)
            return -1;
        (void)json_array_append_new(json_object_get(manifest, "layers"), part);
    }
    return add_manifest(image, manifest, err);
}

int image_open(struct image *image, const char *path, struct error *err)
{
    struct stat st;
    int rc = 0;

    image->dir = -1;
    if (stat(path, &st) < 0)
        return error_set_errno(err, errno, "'%s'", path);
    if (S_ISDIR(st.st_mode)) {
        image->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (image->dir < 0)
            return error_set_errno(err, errno, "'%s'", path);
    } else {
        rc = unpack(image, path, err);
    }
    if (rc == 0)
        rc = faccessat(image->dir, "index.json", R_OK, 0) == 0 ? read_layout(image, err)
                                                               : read_saved(image, err);
    return rc < 0 ? error_prefix(err, "'%s'", path) : 0;
}

int image_empty(struct image *image, struct error *err)
{
    static const char config[] =
        "{\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":\"layers\"}}";
    static const char end_of_archive[1024];
    auto_json json_t *manifest = NULL;

    image->dir = -1;
    if (add_text(image, str_of(config), err) < 0 ||
        add_text(image, str_n(end_of_archive, sizeof(end_of_archive)), err) < 0)
        return -1;
    manifest = json_pack(
        "{s:i,s:s,s:{s:s,s:o,s:i},s:[{s:s,s:o,s:i}]}", "schemaVersion", 2, "mediaType",
        "application/vnd.oci.image.manifest.v1+json", "config", "mediaType",
        "application/vnd.oci.image.config.v1+json", "digest",
        json_sprintf("sha256:%s", image->blobs[0].hash), "size", (int)sizeof(config) - 1, "layers",
        "mediaType", "application/vnd.oci.image.layer.v1.tar", "digest",
        json_sprintf("sha256:%s", image->blobs[1].hash), "size", (int)sizeof(end_of_archive));
    return add_manifest(image, manifest, err);
}

/* ---- sending it ---- */

static int send_blob(const struct image *image, const struct image_blob *blob,
                     const struct cli *cli, const char *template_id, struct error *err)
{
    auto_free char *url = NULL;
    auto_close int fd = -1;
    char what[32];
    int rc;

    if (upload_wanted(cli, template_id, blob->hash, &url, err) < 0)
        return -1;
    if (!url)
        return 0;
    fd = blob->path ? path_open_in_root(image->dir, blob->path, O_RDONLY, 0) : upload_scratch(err);
    if (fd < 0)
        return blob->path ? error_set_errno(err, -fd, "'%s' of the image", blob->path) : -1;
    rc = blob->path ? 0 : fd_write_full(fd, blob->text.p, blob->text.len);
    if (rc < 0)
        return error_set_errno(err, -rc, "the manifest");
    (void)snprintf(what, sizeof(what), "blob %.12s", blob->hash);
    return upload_put(cli, blob->path ? what : NULL, url, fd, err);
}

int image_send(struct image *image, const struct cli *cli, const char *template_id,
               struct error *err)
{
    for (size_t i = 0; i < image->count; i++)
        if (send_blob(image, &image->blobs[i], cli, template_id, err) < 0)
            return -1;
    return 0;
}

void image_done(struct image *image)
{
    if (image->blobs || image->scratch || image->dir > 0)
        close_fd(&image->dir);
    if (image->scratch)
        (void)path_remove_tree(AT_FDCWD, image->scratch);
    free(image->scratch);
    free(image->blobs);
    arena_done(&image->arena);
    *image = (struct image){.dir = -1};
}
