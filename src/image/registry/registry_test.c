/* The client against a registry of the test's own, which can be as bad as it likes. The real one is met in tests/functional. */
#include "image/registry/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "protocol/fetch/test/fetch_rig.h"

enum { BLOB = 1500 * 1000 };

struct rig {
    struct fetch_rig *http;
    struct registry *registry;
    struct reference reference;
    char dir[64], mirror[160];
    char *blob;
    char blob_digest[80], config_digest[80], manifest_digest[80];
    char manifest[2048];
    const char *token_realm; /* NULL = none wanted */
    int bad_tokens;          /* refuses that many */
    int cut_after;           /* bytes of each answer with a blob; 0 = all */
    bool lies, no_ranges, endless, stalls, longer, drips, many_headers;
    const char *document; /* instead of the manifest */
    const char *redirect; /* of blobs */
    atomic_int blob_requests, token_requests, stop;
    char seen_authorization[128];
};

static const char config_json[] =
    "{\"os\":\"linux\",\"config\":{\"Env\":[\"A=1\"],\"User\":\"u\"}}";

static void digest_text(struct str bytes, char out[80])
{
    char hex[SHA256_HEX_SIZE];

    sha256_hex(bytes, hex);
    (void)snprintf(out, 80, "sha256:%s", hex);
}

static void note_authorization(struct rig *rig, struct fetch_rig_exchange *ex)
{
    struct str value = fetch_rig_header(ex, "authorization");

    (void)snprintf(rig->seen_authorization, sizeof(rig->seen_authorization), "%.*s",
                   STR_ARG(value));
}

/* A byte at a time, each a second after the one before. */
static void drip(struct rig *rig, struct fetch_rig_exchange *ex)
{
    fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nContent-Length: 1500000\r\n\r\n"));
    for (int i = 0; i < 1000 && !fetch_rig_stopping(rig->http); i++) {
        fetch_rig_send(ex, STR(" "));
        clock_test_pass(1000 * 1000);
        (void)usleep(2000);
    }
    ex->close = true;
}

static void answer_blob(struct rig *rig, struct fetch_rig_exchange *ex)
{
    struct str range = fetch_rig_header(ex, "range");
    uint64_t from = 0;
    char head[256];
    size_t len;

    atomic_fetch_add(&rig->blob_requests, 1);
    note_authorization(rig, ex);
    if (rig->drips) {
        drip(rig, ex);
        return;
    }
    if (range.p && !rig->no_ranges) {
        struct str text = str_skip(range, sizeof("bytes=") - 1);

        CHECK(str_to_u64(str_split(&text, '-'), &from));
    }
    len = BLOB - from;
    if (from > 0)
        (void)snprintf(head, sizeof(head),
                       "HTTP/1.1 206 Partial\r\nContent-Length: %zu\r\nContent-Range: bytes "
                       "%llu-%d/%d\r\n\r\n",
                       len, (unsigned long long)from, BLOB - 1, BLOB);
    else
        (void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                       len + rig->longer);
    fetch_rig_send(ex, str_of(head));
    if (rig->stalls) {
        fetch_rig_send(ex, str_n(rig->blob, 1000));
        while (!fetch_rig_stopping(rig->http))
            (void)usleep(10000);
        ex->close = true;
        return;
    }
    if (rig->cut_after && len > (size_t)rig->cut_after) {
        len = (size_t)rig->cut_after;
        ex->close = true;
    }
    fetch_rig_send(ex, str_n(rig->blob + from, len));
    if (rig->longer)
        fetch_rig_send(ex, STR("x"));
}

static void answer_endless(struct rig *rig, struct fetch_rig_exchange *ex)
{
    auto_free char *piece = xcalloc(1, 64 * 1024);

    fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for (int i = 0; i < 1000 && !fetch_rig_stopping(rig->http); i++)
        fetch_rig_chunk(ex, str_n(piece, 64 * 1024));
    ex->close = true;
}

static void answer_with_many_headers(struct rig *rig, struct fetch_rig_exchange *ex)
{
    fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\n"));
    for (int i = 0; i < 100000 && !fetch_rig_stopping(rig->http); i++)
        fetch_rig_send(ex, STR("X-Filler: 0123456789012345678901234567890123456789\r\n"));
    ex->close = true;
}

static bool wants_token(struct rig *rig, struct fetch_rig_exchange *ex)
{
    struct str value = fetch_rig_header(ex, "authorization");
    char head[512];

    if (!rig->token_realm || (str_is(value, "Bearer good") && rig->bad_tokens == 0))
        return false;
    (void)snprintf(
        head, sizeof(head),
        "WWW-Authenticate: Bearer realm=\"%s%s\",service=\"s\",scope=\"repository:a/b:pull\"\r\n",
        rig->token_realm[0] == '/' ? fetch_rig_url(rig->http) : "", rig->token_realm);
    fetch_rig_answer(ex, 401, head, STR("{}"));
    return true;
}

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    struct rig *rig = arg;
    char place[512];

    if (strncmp(ex->target, "/token", 6) == 0) {
        atomic_fetch_add(&rig->token_requests, 1);
        note_authorization(rig, ex);
        fetch_rig_answer(ex, 200, NULL, STR("{\"token\":\"good\"}"));
    } else if (wants_token(rig, ex)) {
        return;
    } else if (strstr(ex->target, "/manifests/")) {
        if (rig->endless)
            answer_endless(rig, ex);
        else if (rig->drips)
            drip(rig, ex);
        else if (rig->many_headers)
            answer_with_many_headers(rig, ex);
        else
            fetch_rig_answer(ex, 200, NULL, str_of(rig->document ? rig->document : rig->manifest));
    } else if (strstr(ex->target, rig->config_digest)) {
        fetch_rig_answer(ex, 200, NULL, rig->lies ? STR("{}") : str_of(config_json));
    } else if (rig->redirect && strncmp(ex->target, "/v2/", 4) == 0) {
        (void)snprintf(place, sizeof(place), "Location: %s\r\n", rig->redirect);
        fetch_rig_answer(ex, 307, place, STR(""));
    } else if (strstr(ex->target, rig->blob_digest) || strcmp(ex->target, "/elsewhere") == 0) {
        answer_blob(rig, ex);
    } else {
        fetch_rig_answer(ex, 404, NULL, STR("{}"));
    }
}

static void rig_open(struct rig *rig)
{
    struct registry_config config = {.blobs = rig->dir, .mirrors = rig->mirror, .stall_ms = 1000};

    rig->blob = xmalloc(BLOB);
    for (size_t i = 0; i < BLOB; i++)
        rig->blob[i] = (char)(i * 7 + i / 911);
    digest_text(str_n(rig->blob, BLOB), rig->blob_digest);
    digest_text(str_of(config_json), rig->config_digest);
    (void)snprintf(rig->manifest, sizeof(rig->manifest),
                   "{\"schemaVersion\":2,\"config\":{\"digest\":\"%s\",\"size\":%zu},\"layers\":[{"
                   "\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",\"digest\":\"%s\","
                   "\"size\":%d}]}",
                   rig->config_digest, sizeof(config_json) - 1, rig->blob_digest, BLOB);
    digest_text(str_of(rig->manifest), rig->manifest_digest);
    rig->http = fetch_rig_new(NULL, answer, rig);
    (void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/registry-test-XXXXXX");
    CHECK(mkdtemp(rig->dir));
    (void)snprintf(rig->mirror, sizeof(rig->mirror), "docker.io=%s", fetch_rig_url(rig->http));
    OK(registry_open(&config, &rig->registry, &err));
    OK(reference_parse(STR("a/b:c"), &rig->reference, &err));
}

static void rig_close(struct rig *rig)
{
    registry_close(rig->registry);
    fetch_rig_free(rig->http);
    CHECK_INT(path_remove_tree(AT_FDCWD, rig->dir), 0);
    free(rig->blob);
}

static int resolve(struct rig *rig, struct arena *arena, struct registry_image *out,
                   struct error *err)
{
    return registry_resolve(rig->registry, &rig->reference, NULL, NULL, arena, out, err);
}

static bool stopped(void *arg)
{
    return atomic_load(&((struct rig *)arg)->stop);
}

static int fetch(struct rig *rig, struct error *err)
{
    struct descriptor blob = {str_of(rig->blob_digest), BLOB};
    struct registry_watch watch = {.arg = rig, .stopped = stopped};

    return registry_fetch(rig->registry, &rig->reference, NULL, &watch, &blob, 1, err);
}

static int files_in(const char *dir)
{
    DIR *open = opendir(dir);
    int count = 0;

    for (const struct dirent *entry; open && (entry = readdir(open));)
        count += entry->d_name[0] != '.';
    if (open)
        (void)closedir(open);
    return count;
}

static void check_blob(struct rig *rig)
{
    auto_buf struct buf got = {0};
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/%s", rig->dir, rig->blob_digest + 7);
    buf_init(&got, BLOB + 1);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &got), 0);
    CHECK(str_eq(buf_str(&got), str_n(rig->blob, BLOB)));
}

TEST(resolve_and_fetch)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {0};

    rig_open(&rig);
    OK(resolve(&rig, &arena, &image, &err));
    CHECK_STR(image.digest, rig.manifest_digest);
    CHECK_STR(image.settings.user, "u");
    CHECK_INT(image.manifest.layer_count, 1);
    OK(fetch(&rig, &err));
    check_blob(&rig);
    OK(fetch(&rig, &err));
    CHECK_INT(rig.blob_requests, 1); /* stored once */
    rig_close(&rig);
}

TEST(token)
{
    auto_arena struct arena arena = {0};
    struct registry_login_words login = {STR("me"), STR("secret")};
    struct registry_image image;
    struct rig rig = {.token_realm = "/token?a=b"};

    rig_open(&rig);
    OK(resolve(&rig, &arena, &image, &err));
    CHECK_INT(rig.token_requests, 1);
    OK(registry_resolve(rig.registry, &rig.reference, &login, NULL, &arena, &image, &err));
    CHECK_STR(str_of(rig.seen_authorization), "Basic bWU6c2VjcmV0");
    rig_close(&rig);
}

TEST(token_that_is_never_good)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.token_realm = "/token", .bad_tokens = 1};

    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_UNAUTHORIZED, "image 'docker.io/a/b:c'");
    CHECK_INT(rig.token_requests, 1);
    rig_close(&rig);
}

TEST(token_from_where_it_must_not_lead)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.token_realm = "http://127.0.0.2:1/token"};

    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_FORBIDDEN, "not allowed");
    rig.token_realm = "https://127.0.0.2:1/token";
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_FORBIDDEN, "not a public address");
    rig_close(&rig);
}

TEST(digests_are_checked)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.lies = true};

    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_INVALID, "not what the digest says");
    rig.blob[5] ^= 1;
    FAILS(fetch(&rig, &err), ERROR_INVALID, "not what the digest");
    CHECK_INT(files_in(rig.dir), 0);
    rig.blob[5] ^= 1;
    rig.longer = true;
    FAILS(fetch(&rig, &err), ERROR_INVALID, "more than");
    (void)snprintf(rig.reference.digest, sizeof(rig.reference.digest), "%s", rig.blob_digest);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_INVALID, "manifest is not what");
    rig_close(&rig);
}

TEST_TIMEOUT(cut_lines_are_taken_up_again, 60)
{
    struct rig rig = {.cut_after = 400 * 1000};

    rig_open(&rig);
    OK(fetch(&rig, &err));
    check_blob(&rig);
    CHECK_INT(rig.blob_requests, 4); /* 400, 800, 1200, 1500 kB */
    rig_close(&rig);
}

TEST_TIMEOUT(what_is_there_stays_for_the_next_time, 60)
{
    struct rig rig = {.cut_after = 1000};

    rig_open(&rig);
    FAILS(fetch(&rig, &err), ERROR_UNAVAILABLE);
    rig.cut_after = 0;
    rig.blob_requests = 0;
    OK(fetch(&rig, &err));
    CHECK_INT(rig.blob_requests, 1);
    check_blob(&rig);
    rig_close(&rig);
}

TEST_TIMEOUT(registry_without_ranges, 60)
{
    struct rig rig = {.cut_after = 1000, .no_ranges = true};

    rig_open(&rig);
    FAILS(fetch(&rig, &err), ERROR_UNAVAILABLE);
    rig.cut_after = 0;
    OK(fetch(&rig, &err));
    check_blob(&rig);
    rig_close(&rig);
}

TEST_TIMEOUT(stalls_are_given_up, 60)
{
    struct rig rig = {.stalls = true};
    int64_t before_ms;

    rig_open(&rig);
    before_ms = clock_mono_ms();
    FAILS(fetch(&rig, &err), ERROR_TIMEOUT);
    CHECK(clock_mono_ms() - before_ms < 30000);
    atomic_store(&rig.stop, 1);
    FAILS(fetch(&rig, &err), ERROR_CONFLICT, "stopped");
    rig_close(&rig);
}

TEST(endless_manifest)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.endless = true};

    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_LIMIT, "longer than");
    rig_close(&rig);
}

TEST(redirects)
{
    struct rig rig = {.redirect = "/elsewhere"};

    rig_open(&rig);
    OK(fetch(&rig, &err));
    check_blob(&rig);
    rig_close(&rig);
}

TEST(redirects_into_private_networks)
{
    static const char *const bad[][2] = {
        {"https://10.9.9.9/blob", "not a public address"},
        {"https://127.0.0.2:9/blob", "not a public address"},
        {"https://[::1]:9/blob", "not a public address"},
        {"https://169.254.169.254/latest", "not a public address"},
        {"https://0.0.0.0:9/blob", "not a public address"},
        {"https://100.64.0.1/blob", "not a public address"},
        {"https://2130706433:9/blob", "not a public address"},
        {"https://0x7f.1:9/blob", "not a public address"},
        {"https://[::ffff:127.0.0.1]:9/blob", "not a public address"},
        {"https://[64:ff9b::7f00:1]:9/blob", "not a public address"},
        {"https://[2002:7f00:1::]:9/blob", "not a public address"},
        {"https://[fe80::1]:9/blob", "not a public address"},
        {"https://[fd00::1]:9/blob", "not a public address"},
        /* Names count by what they lead to when the socket is made. */
        {"https://localhost:9/blob", "not a public address"},
        {"https://public.example@127.0.0.1:9/blob", "leads nowhere"},
        {"http://93.184.216.34/blob", "without encryption"},
        {"http://127.0.0.2:9/blob", "without encryption"},
        {"file:///etc/passwd", "leads nowhere"},
        {"", "leads nowhere"},
        {"/v2/again", "circles"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rig rig = {.redirect = bad[i][0]};
        struct error err = {0};

        rig_open(&rig);
        CHECK(fetch(&rig, &err) < 0);
        if (!strstr(err.message, bad[i][1]))
            test_fail(__FILE__, __LINE__, "'%s': %s", bad[i][0], err.message);
        CHECK_INT(rig.blob_requests, 0);
        rig_close(&rig);
    }
}

TEST(tokens_stay_with_their_registry)
{
    struct rig rig = {.token_realm = "/token"}, other = {0};
    char place[256], mirrors[400];
    struct registry_config config = {.blobs = rig.dir, .mirrors = mirrors};

    rig_open(&rig);
    rig_open(&other);
    (void)snprintf(place, sizeof(place), "%s/elsewhere", fetch_rig_url(other.http));
    rig.redirect = place;
    registry_close(rig.registry);
    (void)snprintf(mirrors, sizeof(mirrors), "docker.io=%s %s", fetch_rig_url(rig.http),
                   fetch_rig_url(other.http));
    OK(registry_open(&config, &rig.registry, &err));
    OK(fetch(&rig, &err));
    CHECK_INT(rig.token_requests, 1);
    CHECK_INT(other.blob_requests, 1);
    CHECK_STR(str_of(other.seen_authorization), "");
    rig_close(&other);
    rig_close(&rig);
}

/* The registry `docker.io` at one server, another name at a second one. */
struct registries {
    struct rig rig, other;
    char place[256], mirrors[400];
};

static void pair_open(struct registries *pair, const char *mirrors)
{
    struct registry_config config = {
        .blobs = pair->rig.dir, .mirrors = pair->mirrors, .stall_ms = 1000};

    rig_open(&pair->rig);
    rig_open(&pair->other);
    registry_close(pair->rig.registry);
    (void)snprintf(pair->place, sizeof(pair->place), "%s/elsewhere",
                   fetch_rig_url(pair->other.http));
    (void)snprintf(pair->mirrors, sizeof(pair->mirrors), "docker.io=%s%s%s",
                   fetch_rig_url(pair->rig.http), mirrors, fetch_rig_url(pair->other.http));
    OK(registry_open(&config, &pair->rig.registry, &err));
}

static void pair_close(struct registries *pair)
{
    rig_close(&pair->other);
    rig_close(&pair->rig);
}

TEST(redirect_to_the_mirror_of_another_registry)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct registries pair = {0};

    pair_open(&pair, ",private.example=");
    pair.rig.redirect = pair.place;
    FAILS(fetch(&pair.rig, &err), ERROR_FORBIDDEN, "without encryption");
    pair.rig.token_realm = pair.place;
    FAILS(resolve(&pair.rig, &arena, &image, &err), ERROR_FORBIDDEN, "not allowed");
    CHECK_INT(pair.other.blob_requests, 0);
    pair_close(&pair);
    /* The storage of this one. */
    pair = (struct registries){0};
    pair_open(&pair, "  ");
    pair.rig.redirect = pair.place;
    OK(fetch(&pair.rig, &err));
    CHECK_INT(pair.other.blob_requests, 1);
    pair_close(&pair);
}

TEST(a_place_that_is_led_to_gets_no_password)
{
    struct registry_login_words login = {STR("me"), STR("secret")};
    struct descriptor blob;
    struct registries pair = {0};

    pair_open(&pair, " ");
    pair.rig.redirect = pair.place;
    pair.other.token_realm = "/token";
    blob = (struct descriptor){str_of(pair.rig.blob_digest), BLOB};
    FAILS(registry_fetch(pair.rig.registry, &pair.rig.reference, &login, NULL, &blob, 1, &err),
          ERROR_UNAUTHORIZED, "refuses (401)");
    CHECK_INT(pair.other.token_requests, 0);
    CHECK_STR(str_of(pair.other.seen_authorization), "");
    pair_close(&pair);
}

static atomic_int stalled_ended;

static void *fetch_stalled(void *arg)
{
    struct error err = {0};

    CHECK(fetch(arg, &err) < 0);
    atomic_store(&stalled_ended, 1);
    return NULL;
}

TEST_TIMEOUT(a_registry_that_stalls_does_not_hold_up_another_with_the_same_blob, 60)
{
    struct registries pair = {.rig.stalls = true};
    struct descriptor blob;
    struct reference same;
    pthread_t thread;

    pair_open(&pair, ",honest.example=");
    CHECK_INT(pthread_create(&thread, NULL, fetch_stalled, &pair.rig), 0);
    WAIT_FOR(atomic_load(&pair.rig.blob_requests) > 0);
    OK(reference_parse(STR("honest.example/a/b:c"), &same, &err));
    blob = (struct descriptor){str_of(pair.rig.blob_digest), BLOB};
    OK(registry_fetch(pair.rig.registry, &same, NULL, NULL, &blob, 1, &err));
    CHECK_INT(atomic_load(&stalled_ended), 0);
    check_blob(&pair.rig);
    atomic_store(&pair.rig.stop, 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    pair_close(&pair);
}

TEST_TIMEOUT(documents_that_drip_are_given_up, 60)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.drips = true};

    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_TIMEOUT, "too slow");
    FAILS(fetch(&rig, &err), ERROR_TIMEOUT, "too slow");
    rig_close(&rig);
}

TEST_TIMEOUT(headers_without_an_end, 60)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.many_headers = true};

    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_UNAVAILABLE, "");
    rig_close(&rig);
}

TEST(documents_that_are_nested)
{
    static char deep[100001];
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {.document = deep};
    char index[512];

    memset(deep, '[', sizeof(deep) - 1);
    rig_open(&rig);
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_INVALID, "no JSON object");
    (void)snprintf(index, sizeof(index),
                   "{\"schemaVersion\":2,\"manifests\":[{\"digest\":\"%s\",\"size\":10}]}",
                   rig.manifest_digest);
    rig.document = index;
    FAILS(resolve(&rig, &arena, &image, &err), ERROR_INVALID, "not what the digest says");
    rig_close(&rig);
}

static int refuse_to_grow(void *arg, int64_t bytes, struct error *err)
{
    (void)arg, (void)bytes;
    return error_set(err, ERROR_QUOTA, "your team's limit of 50 MiB of disk is reached");
}

TEST(a_blob_that_the_team_has_no_room_for)
{
    struct registry_watch watch = {.grow = refuse_to_grow};
    struct descriptor blob;
    struct rig rig = {0};
    char path[160];

    rig_open(&rig);
    blob = (struct descriptor){str_of(rig.blob_digest), BLOB};
    FAILS(registry_fetch(rig.registry, &rig.reference, NULL, &watch, &blob, 1, &err), ERROR_LIMIT,
          "your team's limit of 50 MiB");
    CHECK_INT(rig.blob_requests, 1); /* and not again */
    (void)snprintf(path, sizeof(path), "%s/%s", rig.dir, rig.blob_digest + 7);
    CHECK(access(path, F_OK) < 0);
    rig_close(&rig);
}

TEST(unknown_image_and_unreachable_registry)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;
    struct rig rig = {0};
    struct reference local;

    rig_open(&rig);
    OK(reference_parse(STR("127.0.0.1:1/x"), &local, &err));
    FAILS(registry_resolve(rig.registry, &local, NULL, NULL, &arena, &image, &err), ERROR_FORBIDDEN,
          "not a public address");
    rig_close(&rig);
}

TEST(mirrors)
{
    OK(registry_mirrors_check("", &err));
    OK(registry_mirrors_check("docker.io=http://127.0.0.1:5000, ghcr.io=https://m.example/,",
                              &err));
    FAILS(registry_mirrors_check("docker.io", &err), ERROR_INVALID, "not a mirror");
    OK(registry_mirrors_check("docker.io=http://127.0.0.1:5000 http://127.0.0.1:9000/", &err));
    FAILS(registry_mirrors_check("docker.io=http://a file:///b", &err), ERROR_INVALID);
    FAILS(registry_mirrors_check("a=http://b http://c http://d http://e http://f", &err),
          ERROR_INVALID);
    FAILS(registry_mirrors_check("=http://a", &err), ERROR_INVALID);
    FAILS(registry_mirrors_check("a=ftp://b", &err), ERROR_INVALID);
}

TEST(blobs_leave_most_of_a_small_disk)
{
    struct rig rig = {0};

    if (unshare(CLONE_NEWNS) < 0)
        test_lacks("needs a mount namespace");
    CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK_INT(mount("tmpfs", "/tmp", "tmpfs", 0, "size=5m"), 0);
    rig_open(&rig);
    OK(fetch(&rig, &err));
    CHECK_INT(files_in(rig.dir), 1);
    blobs_prune(registry_blobs(rig.registry), INT64_MAX, INT64_MAX); /* 1.5 of 5 MB */
    CHECK_INT(files_in(rig.dir), 0);
    rig_close(&rig);
}

TEST(pruning)
{
    struct rig rig = {0};
    char link_path[160];
    char path[160];

    rig_open(&rig);
    OK(fetch(&rig, &err));
    (void)snprintf(path, sizeof(path), "%s/%s", rig.dir, rig.blob_digest + 7);
    (void)snprintf(link_path, sizeof(link_path), "%s.used", rig.dir);
    OK(blobs_link(registry_blobs(rig.registry), &(struct descriptor){str_of(rig.blob_digest), BLOB},
                  link_path, &err));
    clock_test_pass(3700 * INT64_C(1000000));
    blobs_prune(registry_blobs(rig.registry), 3600, INT64_MAX);
    CHECK(access(path, F_OK) == 0); /* somebody uses it */
    CHECK_INT(unlink(link_path), 0);
    blobs_prune(registry_blobs(rig.registry), INT64_MAX, INT64_MAX);
    CHECK(access(path, F_OK) == 0);
    blobs_prune(registry_blobs(rig.registry), INT64_MAX, BLOB - 1);
    CHECK(access(path, F_OK) < 0);
    /* By its age alone. */
    OK(fetch(&rig, &err));
    blobs_prune(registry_blobs(rig.registry), 7200, INT64_MAX);
    CHECK(access(path, F_OK) == 0);
    clock_test_pass(7300 * INT64_C(1000000));
    blobs_prune(registry_blobs(rig.registry), 7200, INT64_MAX);
    CHECK(access(path, F_OK) < 0);
    rig_close(&rig);
}
