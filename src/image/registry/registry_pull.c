/* An image: its manifest and settings, then its layers, some at a time. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "image/registry/registry_internal.h"

enum {
    TRIES = 4,
    PAUSE_MS = 500,
    THREADS = 3,
    PIECE_SIZE = 256 * 1024,
    SLOW_MS = 60 * 1000, /* in so long at least ... */
    SLOW_BYTES = 64 * 1024,
};
static const int64_t image_max = INT64_C(1) << 35;

static void say(struct visit *visit, const char *text)
{
    if (!visit->watch || !visit->watch->line)
        return;
    (void)pthread_mutex_lock(&visit->lock);
    visit->watch->line(visit->watch->arg, str_of(text));
    (void)pthread_mutex_unlock(&visit->lock);
}

static bool may_pass(const struct error *err)
{
    return err->code == ERROR_UNAVAILABLE || err->code == ERROR_TIMEOUT || err->code == ERROR_QUOTA;
}

/* False: somebody wants it to end. */
static bool pause_before(const struct visit *visit, int try)
{
    for (int ms = 0; ms < PAUSE_MS << try; ms += 50) {
        if (visit_stopped(visit))
            return false;
        (void)usleep(50 * 1000);
    }
    return true;
}

/* ---- documents ---- */

static int get_once(struct visit *visit, const char *path, const char *accept, struct buf *out,
                    struct error *err)
{
    struct fetch_stream *stream = NULL;
    struct answer answer;
    int r = visit_get(visit, path, accept, 0, &stream, &answer, err);

    buf_clear(out);
    if (r == 0)
        r = visit_read(visit, stream, out, err);
    fetch_close(stream);
    return r;
}

static int get_document(struct visit *visit, const char *path, const char *accept, struct buf *out,
                        struct error *err)
{
    for (int try = 0;; try++) {
        struct error why = {0};
        int r = get_once(visit, path, accept, out, &why);

        if (r == 0)
            return 0;
        if (try + 1 == TRIES || !may_pass(&why) || !pause_before(visit, try)) {
            *err = why;
            return -1;
        }
    }
}

/* digest: what it must be; STR_NONE = whatever it is. */
static int get_manifest(struct visit *visit, const char *name, struct str digest,
                        struct arena *arena, struct manifest *out, struct str *out_digest,
                        struct error *err)
{
    auto_buf struct buf body = {0};
    char path[256], hex[SHA256_HEX_SIZE];

    buf_init(&body, MANIFEST_MAX);
    (void)snprintf(path, sizeof(path), "manifests/%s", name);
    if (get_document(visit, path, manifest_accept, &body, err) < 0)
        return -1;
    if (digest.p && !digest_is_of(digest, buf_str(&body)))
        return error_set(err, ERROR_INVALID, "its manifest is not what the digest says");
    sha256_hex(buf_str(&body), hex);
    *out_digest = str_of(arena_printf(arena, "sha256:%s", hex));
    return manifest_parse(buf_str(&body), STR_NONE, arena, out, err);
}

static int get_settings(struct visit *visit, const struct manifest *manifest, struct arena *arena,
                        struct image_settings *out, struct error *err)
{
    auto_buf struct buf body = {0};
    char path[256];

    if (manifest->config.bytes > MANIFEST_MAX)
        return error_set(err, ERROR_LIMIT, "its configuration is too long");
    buf_init(&body, MANIFEST_MAX);
    (void)snprintf(path, sizeof(path), "blobs/%.*s", STR_ARG(manifest->config.digest));
    if (get_document(visit, path, NULL, &body, err) < 0)
        return -1;
    if (!digest_is_of(manifest->config.digest, buf_str(&body)))
        return error_set(err, ERROR_INVALID, "its configuration is not what the digest says");
    return image_settings_parse(buf_str(&body), STR_NONE, manifest->layer_count, arena, out, err);
}

static int check_size(const struct manifest *manifest, struct error *err)
{
    char size[SIZE_TEXT];
    int64_t total = 0;

    for (size_t i = 0; i < manifest->layer_count; i++)
        total += manifest->layers[i].bytes;
    return total <= image_max ? 0
                              : error_set(err, ERROR_LIMIT, "its layers are larger than %s",
                                          size_text((uint64_t)image_max, size));
}

static int resolve(struct visit *visit, struct arena *arena, struct registry_image *out,
                   struct error *err)
{
    const struct reference *reference = visit->reference;
    bool by_digest = reference->digest[0] != '\0';

    if (get_manifest(visit, by_digest ? reference->digest : reference->tag,
                     by_digest ? str_of(reference->digest) : STR_NONE, arena, &out->manifest,
                     &out->digest, err) < 0)
        return -1;
    if (out->manifest.is_index) {
        struct descriptor chosen = out->manifest.chosen;

        if (get_manifest(visit, chosen.digest.p, chosen.digest, arena, &out->manifest, &out->digest,
                         err) < 0)
            return -1;
        if (out->manifest.is_index)
            return error_set(err, ERROR_UNSUPPORTED, "its index leads to another index");
    }
    if (check_size(&out->manifest, err) < 0)
        return -1;
    return get_settings(visit, &out->manifest, arena, &out->settings, err);
}

static int name_it(const struct reference *reference, struct error *err)
{
    char name[sizeof(struct reference) + 8];

    reference_format(reference, name, sizeof(name));
    return error_prefix(err, "image '%.150s'", name);
}

int registry_resolve(struct registry *registry, const struct reference *reference,
                     const struct registry_login_words *login, const struct registry_watch *watch,
                     struct arena *arena, struct registry_image *out, struct error *err)
{
    struct visit visit;
    int r;

    *out = (struct registry_image){0};
    visit_open(&visit, registry, reference, login, watch);
    r = resolve(&visit, arena, out, err);
    visit_close(&visit);
    return r < 0 ? name_it(reference, err) : 0;
}

/* ---- blobs ---- */

/* A limit of ours is not the registry's: trying again would not help. */
static int grow(struct visit *visit, int64_t bytes, struct error *err)
{
    const struct registry_watch *watch = visit->watch;

    if (!watch || !watch->grow || watch->grow(watch->arg, bytes, err) == 0)
        return 0;
    err->code = ERROR_LIMIT;
    return -1;
}

static int receive(struct visit *visit, struct fetch_stream *stream, struct blob_writer *writer,
                   struct error *err)
{
    auto_free char *piece = xmalloc(PIECE_SIZE);
    int64_t since_ms = clock_mono_ms(), since_at = writer->at;

    for (;;) {
        ssize_t got = visit_next(visit, stream, piece, PIECE_SIZE, err);

        if (got > 0 && grow(visit, got, err) < 0)
            return -1;
        if (got > 0 && blob_write(writer, piece, (size_t)got, err) < 0)
            return -1;
        if (got == 0)
            return writer->at == writer->blob.bytes
                       ? 0
                       : error_set(err, ERROR_UNAVAILABLE, "the registry sends too little");
        if (got < 0)
            return -1;
        if (clock_mono_ms() - since_ms < SLOW_MS)
            continue;
        if (writer->at - since_at < SLOW_BYTES)
            return error_set(err, ERROR_TIMEOUT, "the registry is too slow");
        since_ms = clock_mono_ms();
        since_at = writer->at;
    }
}

static int get_blob_once(struct visit *visit, struct blob_writer *writer, struct error *err)
{
    struct fetch_stream *stream = NULL;
    struct answer answer;
    char path[256];
    int r;

    if (writer->at == writer->blob.bytes)
        return 0;
    (void)snprintf(path, sizeof(path), "blobs/%.*s", STR_ARG(writer->blob.digest));
    r = visit_get(visit, path, NULL, writer->at, &stream, &answer, err);
    /* Who does not know ranges sends all of it. */
    if (r == 0 && writer->at > 0 && (answer.status != 206 || answer.range_from != writer->at))
        r = answer.status == 206
                ? error_set(err, ERROR_INVALID, "the registry sends another part than asked for")
                : blob_restart(writer, err);
    if (r == 0)
        r = receive(visit, stream, writer, err);
    fetch_close(stream);
    return r;
}

static int get_blob_tries(struct visit *visit, struct blob_writer *writer, struct error *err)
{
    for (int try = 0;; try++) {
        struct error why = {0};
        int64_t before = writer->at;

        if (get_blob_once(visit, writer, &why) == 0)
            return blob_finish(writer, err);
        /* A line that is cut again and again but moves on is not given up. */
        if (writer->at - before >= PIECE_SIZE)
            try = 0;
        if (try + 1 == TRIES || !may_pass(&why) || !pause_before(visit, try)) {
            *err = why;
            return -1;
        }
    }
}

static bool stopped(void *arg)
{
    return visit_stopped(arg);
}

static int get_blob(struct visit *visit, const struct descriptor *wanted, struct error *err)
{
    struct descriptor blob = *wanted;

    blob.source = str_of(visit->reference->host);
    /* What an earlier try left may have been wrong: once more, from the beginning. */
    for (bool again = false;; again = true) {
        struct blob_writer writer;
        int r = blob_begin(visit->registry->blobs, &blob, stopped, visit, &writer, err);
        bool resumed = r == 0 && writer.at > 0;

        if (r == 0)
            r = get_blob_tries(visit, &writer, err);
        blob_leave(&writer);
        if (r >= 0)
            return 0;
        if (again || !resumed || err->code != ERROR_INVALID)
            return -1;
    }
}

/* ---- some at a time ---- */

struct crew {
    struct visit *visit;
    const struct descriptor *blobs;
    size_t count, next;
    pthread_mutex_t lock; /* guards next and failure */
    struct error failure;
};

static bool take_next(struct crew *crew, size_t *out)
{
    bool more;

    (void)pthread_mutex_lock(&crew->lock);
    *out = crew->next;
    more = crew->next < crew->count && crew->failure.code == ERROR_NONE;
    crew->next += more;
    (void)pthread_mutex_unlock(&crew->lock);
    return more;
}

static void work(void *arg)
{
    struct crew *crew = arg;
    char size[SIZE_TEXT];
    size_t i;

    while (take_next(crew, &i)) {
        struct error why = {0};
        char line[160];

        if (blobs_has(crew->visit->registry->blobs, &crew->blobs[i]))
            continue;
        if (get_blob(crew->visit, &crew->blobs[i], &why) < 0) {
            (void)pthread_mutex_lock(&crew->lock);
            if (crew->failure.code == ERROR_NONE)
                crew->failure = why;
            (void)pthread_mutex_unlock(&crew->lock);
            continue;
        }
        (void)snprintf(line, sizeof(line), "Fetched layer %zu/%zu (%.19s, %s)", i + 1, crew->count,
                       crew->blobs[i].digest.p, size_text((uint64_t)crew->blobs[i].bytes, size));
        say(crew->visit, line);
    }
}

int registry_fetch(struct registry *registry, const struct reference *reference,
                   const struct registry_login_words *login, const struct registry_watch *watch,
                   const struct descriptor *blobs, size_t count, struct error *err)
{
    struct visit visit;
    struct crew crew = {.visit = &visit, .blobs = blobs, .count = count};

    visit_open(&visit, registry, reference, login, watch);
    (void)pthread_mutex_init(&crew.lock, NULL);
    thread_crew("pull", count < THREADS ? count : THREADS, work, &crew);
    (void)pthread_mutex_destroy(&crew.lock);
    visit_close(&visit);
    if (crew.failure.code == ERROR_NONE)
        return 0;
    *err = crew.failure;
    return name_it(reference, err);
}
