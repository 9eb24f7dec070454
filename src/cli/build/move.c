#include "cli/build/move.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "cli/build/image.h"
#include "cli/build/upload.h"
#include "protocol/json/json_shape.h"

enum { WAIT_MS = 3600 * 1000, PIECE = 256 * 1024 };

#define LABEL "dev.quicksand."

/* ---- from the server ---- */

static char *template_target(const char *name, const char *what)
{
    struct buf target;

    buf_init(&target, 4096);
    (void)buf_add_str(&target, STR("/templates/"));
    cli_escape(&target, name);
    (void)buf_printf(&target, "/%s", what);
    return buf_take(&target);
}

static int save_layer(struct http_call *call, struct registry_part *layer, struct error *err)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    unsigned char sum[32];
    int rc = 1;

    (void)EVP_DigestInit_ex(hash, EVP_sha256(), NULL);
    while (rc > 0 || call->body.len > 0) {
        int r = fd_write_full(layer->fd, call->body.p, call->body.len);

        (void)EVP_DigestUpdate(hash, call->body.p, call->body.len);
        layer->bytes += (int64_t)call->body.len;
        buf_clear(&call->body);
        if (r < 0)
            rc = error_set_errno(err, -r, "write the layer");
        else if (rc > 0)
            rc = http_call_recv(call, err);
        if (rc < 0)
            break;
    }
    (void)EVP_DigestFinal_ex(hash, sum, NULL);
    EVP_MD_CTX_free(hash);
    (void)snprintf(layer->digest, sizeof(layer->digest), "sha256:");
    hex_encode(layer->digest + strlen("sha256:"), sum, sizeof(sum));
    return rc < 0 ? -1 : 0;
}

static int get_layer(const struct cli *cli, const char *name, struct registry_part *layer,
                     struct error *err)
{
    const struct pair headers[] = {{STR("X-API-KEY"), str_of(cli->server.key)}};
    auto_free char *target = template_target(name, "layer");
    auto_call struct http_call call = {.fd = -1};

    layer->fd = upload_scratch(err);
    if (layer->fd < 0)
        return -1;
    if (cli_stream_open(
            &call, &cli->server.api,
            &(struct http_call_request){
                .method = "GET", .target = target, .headers = headers, .header_count = 1},
            WAIT_MS, 4 * PIECE, err) < 0 ||
        http_call_recv_head(&call, err) < 0)
        return -1;
    if (call.status / 100 != 2)
        return http_call_recv_all(&call, err) < 0 ? -1 : cli_answer_error(&call, err);
    return save_layer(&call, layer, err);
}

/* The digest of what a layer holds without its compression. */
static int diff_id(int fd, char out[DIGEST_SIZE], struct error *err)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    auto_free char *piece = xmalloc(PIECE);
    unsigned char sum[32];
    gzFile in;
    int n;

    if (lseek(fd, 0, SEEK_SET) < 0 || !(in = gzdopen(dup(fd), "rb"))) {
        EVP_MD_CTX_free(hash);
        return error_set(err, ERROR_INTERNAL, "read the layer");
    }
    (void)EVP_DigestInit_ex(hash, EVP_sha256(), NULL);
    while ((n = gzread(in, piece, PIECE)) > 0)
        (void)EVP_DigestUpdate(hash, piece, (size_t)n);
    (void)gzclose(in);
    (void)EVP_DigestFinal_ex(hash, sum, NULL);
    EVP_MD_CTX_free(hash);
    (void)snprintf(out, DIGEST_SIZE, "sha256:");
    hex_encode(out + strlen("sha256:"), sum, sizeof(sum));
    return n < 0 ? error_set(err, ERROR_UNAVAILABLE, "the layer did not come whole") : 0;
}

/* ---- the image's documents ---- */

static void set_label(json_t *labels, const char *name, const char *text)
{
    auto_free char *label = xasprintf(LABEL "%s", name);

    if (text[0])
        (void)json_object_set_new(labels, label, json_string(text));
}

static const char *text_of(const json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));

    return text ? text : "";
}

static json_t *labels_of(const json_t *settings)
{
    static const char *const sizes[][2] = {
        {"cpu", "cpuCount"}, {"memory", "memoryMB"}, {"disk", "diskSizeMB"}};
    json_t *labels = json_object();

    set_label(labels, "template", "1");
    set_label(labels, "user", text_of(settings, "user"));
    set_label(labels, "workdir", text_of(settings, "workdir"));
    set_label(labels, "start", text_of(settings, "startCmd"));
    set_label(labels, "ready", text_of(settings, "readyCmd"));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char number[32];

        (void)snprintf(number, sizeof(number), "%lld",
                       (long long)json_integer_value(json_object_get(settings, sizes[i][1])));
        set_label(labels, sizes[i][0], number);
    }
    return labels;
}

static json_t *env_of(json_t *settings)
{
    json_t *list = json_array(), *value;
    const char *name;

    json_object_foreach (json_object_get(settings, "env"), name, value) {
        auto_free char *text = xasprintf("%s=%s", name, json_string_value(value));

        (void)json_array_append_new(list, json_string(text));
    }
    return list;
}

/* Others start it as its sandboxes are: as the user, in the directory, with the command. */
static char *config_text(json_t *settings, const char *diff)
{
    const char *start = text_of(settings, "startCmd"), *user = text_of(settings, "user"),
               *workdir = text_of(settings, "workdir");
    json_t *command = start[0] ? json_pack("[ssss]", "/bin/bash", "-l", "-c", start)
                               : json_pack("[s]", "/bin/bash");
    json_t *config = json_pack("{s:o,s:s,s:s,s:o,s:o}", "Env", env_of(settings), "User",
                               user[0] ? user : "user", "WorkingDir",
                               workdir[0] ? workdir
                               : user[0]  ? "/"
                                          : "/home/user",
                               "Cmd", command, "Labels", labels_of(settings));
    auto_json json_t *root =
        json_pack("{s:s,s:s,s:o,s:{s:s,s:[s]}}", "architecture", manifest_architecture().p, "os",
                  "linux", "config", config, "rootfs", "type", "layers", "diff_ids", diff);

    return json_dumps(root, JSON_COMPACT);
}

static void digest_text(struct str bytes, char out[DIGEST_SIZE])
{
    char hex[SHA256_HEX_SIZE];

    sha256_hex(bytes, hex);
    (void)snprintf(out, DIGEST_SIZE, "sha256:%s", hex);
}

static int put_config(struct registry_part *part, const char *text, struct error *err)
{
    part->fd = upload_scratch(err);
    if (part->fd < 0)
        return -1;
    if (fd_write_full(part->fd, text, strlen(text)) < 0)
        return error_set(err, ERROR_NO_SPACE, "write the settings");
    part->bytes = (int64_t)strlen(text);
    digest_text(str_of(text), part->digest);
    return 0;
}

static char *manifest_text(const struct moved *moved)
{
    const struct registry_part *layer = &moved->parts[0], *config = &moved->parts[1];
    auto_json json_t *root = json_pack(
        "{s:i,s:s,s:{s:s,s:s,s:I},s:[{s:s,s:s,s:I}]}", "schemaVersion", 2, "mediaType",
        MOVE_MANIFEST_TYPE, "config", "mediaType", "application/vnd.oci.image.config.v1+json",
        "digest", config->digest, "size", (json_int_t)config->bytes, "layers", "mediaType",
        "application/vnd.oci.image.layer.v1.tar+gzip", "digest", layer->digest, "size",
        (json_int_t)layer->bytes);

    return json_dumps(root, JSON_COMPACT);
}

int move_get(const struct cli *cli, const char *name, struct moved *out, struct error *err)
{
    auto_free char *target = template_target(name, "settings"), *config = NULL;
    auto_json json_t *settings = NULL;
    char diff[DIGEST_SIZE];

    *out = (struct moved){.parts = {{.fd = -1}, {.fd = -1}}};
    if (cli_call(&cli->server, "GET", target, NULL, &settings, NULL, err) < 0 ||
        get_layer(cli, name, &out->parts[0], err) < 0 || diff_id(out->parts[0].fd, diff, err) < 0)
        return -1;
    config = config_text(settings, diff);
    if (!config)
        return error_set(err, ERROR_INVALID, "the template's settings are no text");
    if (put_config(&out->parts[1], config, err) < 0)
        return -1;
    out->manifest = manifest_text(out);
    digest_text(str_of(out->manifest), out->digest);
    return 0;
}

void move_done(struct moved *moved)
{
    for (size_t i = 0; i < MOVE_PARTS; i++)
        close_fd(&moved->parts[i].fd);
    free(moved->manifest);
    moved->manifest = NULL;
}

/* ---- archives ---- */

static int add_file(struct archive *archive, const char *name, struct str text, int fd,
                    int64_t bytes, struct error *err)
{
    struct archive_entry *entry = archive_entry_new();
    auto_free char *piece = xmalloc(PIECE);
    int r;

    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, fd < 0 ? (int64_t)text.len : bytes);
    r = archive_write_header(archive, entry);
    archive_entry_free(entry);
    if (r == ARCHIVE_OK && fd < 0)
        r = archive_write_data(archive, text.p, text.len) < 0 ? ARCHIVE_FATAL : ARCHIVE_OK;
    for (int64_t at = 0; r == ARCHIVE_OK && fd >= 0 && at < bytes;) {
        ssize_t got = pread(fd, piece, PIECE, at);

        if (got <= 0 || archive_write_data(archive, piece, (size_t)got) < 0)
            r = ARCHIVE_FATAL;
        at += got;
    }
    return r == ARCHIVE_OK ? 0
                           : error_set(err, ERROR_INTERNAL, "write '%s': %s", name,
                                       archive_error_string(archive));
}

static int add_blob(struct archive *archive, const char *digest, struct str text, int fd,
                    int64_t bytes, struct error *err)
{
    auto_free char *name = xasprintf("blobs/sha256/%s", digest + strlen("sha256:"));

    return add_file(archive, name, text, fd, bytes, err);
}

int move_write(const struct moved *moved, const char *path, struct error *err)
{
    auto_json json_t *list = json_pack(
        "{s:i, s:[{s:s, s:s, s:I, s:{s:s}}]}", "schemaVersion", 2, "manifests", "mediaType",
        MOVE_MANIFEST_TYPE, "digest", moved->digest, "size", (json_int_t)strlen(moved->manifest),
        "annotations", "org.opencontainers.image.ref.name", "latest");
    auto_free char *index = json_text(list);
    struct archive *archive = archive_write_new();
    int r;

    (void)archive_write_set_format_pax_restricted(archive);
    if (archive_write_open_filename(archive, strcmp(path, "-") == 0 ? NULL : path) != ARCHIVE_OK) {
        (void)error_set(err, ERROR_INVALID, "%s", archive_error_string(archive));
        (void)archive_write_free(archive);
        return -1;
    }
    r = add_file(archive, "oci-layout", STR("{\"imageLayoutVersion\":\"1.0.0\"}"), -1, 0, err);
    if (r == 0)
        r = add_file(archive, "index.json", str_of(index), -1, 0, err);
    if (r == 0)
        r = add_blob(archive, moved->digest, str_of(moved->manifest), -1, 0, err);
    for (size_t i = 0; i < MOVE_PARTS && r == 0; i++)
        r = add_blob(archive, moved->parts[i].digest, STR_NONE, moved->parts[i].fd,
                     moved->parts[i].bytes, err);
    if (r == 0 && archive_write_close(archive) != ARCHIVE_OK)
        r = error_set(err, ERROR_INTERNAL, "write '%s': %s", path, archive_error_string(archive));
    (void)archive_write_free(archive);
    if (r < 0 && strcmp(path, "-") != 0)
        (void)unlink(path);
    return r;
}

/* ---- back ---- */

static const char *label(const json_t *labels, const char *name)
{
    auto_free char *whole = xasprintf(LABEL "%s", name);

    return text_of(labels, whole);
}

static int64_t number(const json_t *labels, const char *name)
{
    int64_t n = 0;

    return str_to_i64(str_of(label(labels, name)), &n) && n > 0 ? n : 0;
}

void move_settings_read(const json_t *labels, struct move_settings *out)
{
    const char *user = label(labels, "user"), *workdir = label(labels, "workdir"),
               *start = label(labels, "start"), *ready = label(labels, "ready");
    json_t *steps = json_array();

    *out = (struct move_settings){.recipe = json_object()};
    if (user[0])
        (void)json_array_append_new(steps, json_pack("{s:s,s:[s]}", "type", "USER", "args", user));
    if (workdir[0])
        (void)json_array_append_new(steps,
                                    json_pack("{s:s,s:[s]}", "type", "WORKDIR", "args", workdir));
    (void)json_object_set_new(out->recipe, "steps", steps);
    if (start[0])
        (void)json_object_set_new(out->recipe, "startCmd", json_string(start));
    if (ready[0])
        (void)json_object_set_new(out->recipe, "readyCmd", json_string(ready));
    out->cpu = number(labels, "cpu");
    out->memory_mb = number(labels, "memory");
    out->disk_mb = number(labels, "disk");
}

static int read_blob(struct image *image, struct str digest, json_t **out, struct error *err)
{
    struct str hex = str_skip(digest, strlen("sha256:"));
    auto_buf struct buf text = {0};

    buf_init(&text, IMAGE_JSON_MAX);
    for (size_t i = 0; i < image->count; i++) {
        const struct image_blob *blob = &image->blobs[i];

        if (!str_is(hex, blob->hash))
            continue;
        if (blob->path && fd_read_file_at(image->dir, blob->path, &text) < 0)
            return error_set(err, ERROR_INVALID, "the image's settings cannot be read");
        return json_parse(blob->path ? buf_str(&text) : blob->text, out, err);
    }
    return error_set(err, ERROR_INVALID, "the image lacks its settings");
}

int move_labels(const char *path, json_t **out, struct error *err)
{
    auto_json json_t *manifest = NULL, *config = NULL;
    struct image image = {.dir = -1};
    int r = image_open(&image, path, err);

    if (r == 0)
        r = read_blob(&image, str_of(image.digest), &manifest, err);
    if (r == 0)
        r = read_blob(&image, json_get_str(json_object_get(manifest, "config"), "digest"), &config,
                      err);
    image_done(&image);
    if (r < 0)
        return -1;
    *out = json_incref(json_object_get(json_object_get(config, "config"), "Labels"));
    return 0;
}
