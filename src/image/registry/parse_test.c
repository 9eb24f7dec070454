#include "base/buf.h"
#include "base/test.h"
#include "image/registry/challenge.h"
#include "image/registry/manifest.h"
#include "image/registry/reference.h"

#define SUM    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "sha256:" SUM

static void check_reference(const char *text, const char *whole)
{
    struct reference reference;
    char formatted[1024];

    OK(reference_parse(str_of(text), &reference, &err));
    reference_format(&reference, formatted, sizeof(formatted));
    CHECK_STR(str_of(formatted), whole);
}

TEST(references)
{
    check_reference("ubuntu", "docker.io/library/ubuntu:latest");
    check_reference("ubuntu:22.04", "docker.io/library/ubuntu:22.04");
    check_reference("e2bdev/base", "docker.io/e2bdev/base:latest");
    check_reference("docker.io/e2bdev/base:x", "docker.io/e2bdev/base:x");
    check_reference("index.docker.io/busybox", "docker.io/library/busybox:latest");
    check_reference("ghcr.io/a/b:v1", "ghcr.io/a/b:v1");
    check_reference("localhost/x", "localhost/x:latest");
    check_reference("localhost:5000/x/y_z/w--v:t-1", "localhost:5000/x/y_z/w--v:t-1");
    check_reference("127.0.0.1:5000/x", "127.0.0.1:5000/x:latest");
    check_reference("[::1]:5000/x", "[::1]:5000/x:latest");
    check_reference("x@" DIGEST, "docker.io/library/x@" DIGEST);
    check_reference("x:y@" DIGEST, "docker.io/library/x:y@" DIGEST);
    check_reference("GHCR.io/x", "ghcr.io/x:latest");
}

TEST(bad_references)
{
    static const char *const bad[] = {"", ":tag", "x:", "x:-a", "X", "a/B", "a//b", "/a", "a/",
                                      "a/../b", "a/.", "a b", "x@sha256:",
                                      /* NOLINTNEXTLINE(bugprone-suspicious-missing-comma) */
                                      "x@md5:" SUM, "x@" DIGEST "0", "-a", "a.-b/.x",
                                      "a.com:99999/x", "a.com:/x", "http://a.com/x", "a..b/../../x",
                                      "a.com/x?y", "a.com/x#y",

                                      "[::1/x", "a@b@" DIGEST, "..", "a.com/%2e%2e/x"};
    struct reference reference;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        FAILS(reference_parse(str_of(bad[i]), &reference, &err), ERROR_INVALID,
              "no name of an image");
}

TEST(challenges)
{
    struct challenge challenge;

    challenge_parse(STR("Bearer realm=\"https://auth.example/token\",service=\"registry\","
                        "scope=\"repository:a/b:pull\""),
                    &challenge);
    CHECK_INT(challenge.kind, CHALLENGE_BEARER);
    CHECK_STR(str_of(challenge.realm), "https://auth.example/token");
    CHECK_STR(str_of(challenge.service), "registry");
    CHECK_STR(str_of(challenge.scope), "repository:a/b:pull");
    challenge_parse(STR("Basic realm=\"say \\\"hi\\\"\""), &challenge);
    CHECK_INT(challenge.kind, CHALLENGE_BASIC);
    CHECK_STR(str_of(challenge.realm), "say \"hi\"");
    challenge_parse(STR("Basic realm=a, BEARER realm=b , Digest realm=c"), &challenge);
    CHECK_INT(challenge.kind, CHALLENGE_BEARER);
    CHECK_STR(str_of(challenge.realm), "b");
    challenge_parse(STR("Negotiate"), &challenge);
    CHECK_INT(challenge.kind, CHALLENGE_NONE);
    challenge_parse(STR("Bearer realm=\"open"), &challenge);
    CHECK_STR(str_of(challenge.realm), "open");
    challenge_parse(STR("=,\",==\"\\"), &challenge);
    CHECK_INT(challenge.kind, CHALLENGE_NONE);
}

static const char index_json[] =
    "{\"schemaVersion\":2,\"manifests\":["
    "{\"digest\":\"sha256:" SUM
    "\",\"size\":1,\"platform\":{\"os\":\"unknown\",\"architecture\":\"unknown\"}},"
    "{\"digest\":\"sha256:" SUM
    "\",\"size\":2,\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}},"
    "{\"digest\":\"sha256:" SUM
    "\",\"size\":3,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\",\"variant\":\"v3\"}},"
    "{\"digest\":\"sha256:" SUM
    "\",\"size\":4,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}},"
    "{\"digest\":\"sha256:" SUM "\",\"size\":5,\"platform\":{\"os\":\"linux\",\"architecture\":"
    "\"arm64\",\"variant\":\"v8\"}}]}";

TEST(platform_of_an_index)
{
    auto_arena struct arena arena = {0};
    struct manifest manifest;

    OK(manifest_parse(str_of(index_json), STR("amd64"), &arena, &manifest, &err));
    CHECK(manifest.is_index);
    CHECK_INT(manifest.chosen.bytes, 4);
    OK(manifest_parse(str_of(index_json), STR("arm64"), &arena, &manifest, &err));
    CHECK_INT(manifest.chosen.bytes, 5);
    FAILS(manifest_parse(str_of(index_json), STR("riscv64"), &arena, &manifest, &err),
          ERROR_NOT_FOUND, "not there for linux/riscv64");
}

#define LAYER(type) "{\"mediaType\":\"" type "\",\"digest\":\"" DIGEST "\",\"size\":7}"
#define MANIFEST(layers)                                                                         \
    "{\"schemaVersion\":2,\"config\":{\"digest\":\"" DIGEST "\",\"size\":9},\"layers\":[" layers \
    "]}"
#define GZIP "application/vnd.oci.image.layer.v1.tar+gzip"

TEST(manifests)
{
    auto_arena struct arena arena = {0};
    struct manifest manifest;

    OK(manifest_parse(
        STR(MANIFEST(LAYER(GZIP) "," LAYER("application/vnd.docker.image.rootfs.diff.tar.gzip"))),
        STR_NONE, &arena, &manifest, &err));
    CHECK_INT(manifest.layer_count, 2);
    CHECK_INT(manifest.config.bytes, 9);
    CHECK_STR(manifest.layers[1].digest, DIGEST);
    FAILS(manifest_parse(
              STR(MANIFEST(LAYER("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"))),
              STR_NONE, &arena, &manifest, &err),
          ERROR_UNSUPPORTED, "not in the registry");
    FAILS(
        manifest_parse(STR(MANIFEST(LAYER("application/wasm"))), STR_NONE, &arena, &manifest, &err),
        ERROR_UNSUPPORTED, "unknown type");
    FAILS(manifest_parse(STR(MANIFEST("")), STR_NONE, &arena, &manifest, &err), ERROR_INVALID);
    FAILS(manifest_parse(STR("{\"schemaVersion\":1}"), STR_NONE, &arena, &manifest, &err),
          ERROR_UNSUPPORTED);
    FAILS(manifest_parse(STR("[]"), STR_NONE, &arena, &manifest, &err), ERROR_INVALID);
    FAILS(manifest_parse(STR("{"), STR_NONE, &arena, &manifest, &err), ERROR_INVALID);
    FAILS(manifest_parse(
              STR("{\"schemaVersion\":2,\"config\":{\"digest\":\"" DIGEST "\",\"size\":-1}}"),
              STR_NONE, &arena, &manifest, &err),
          ERROR_INVALID, "size");
}

TEST(too_many_layers)
{
    auto_arena struct arena arena = {0};
    auto_buf struct buf text = {0};
    struct manifest manifest;

    buf_init(&text, 1024 * 1024);
    buf_add_str(&text, STR("{\"schemaVersion\":2,\"config\":{\"digest\":\"" DIGEST
                           "\",\"size\":9},\"layers\":["));
    for (int i = 0; i <= MANIFEST_LAYERS_MAX; i++)
        buf_printf(&text, "%s%s", i ? "," : "", LAYER(GZIP));
    buf_add_str(&text, STR("]}"));
    FAILS(manifest_parse(buf_str(&text), STR_NONE, &arena, &manifest, &err), ERROR_LIMIT,
          "513 layers");
}

TEST(settings)
{
    static const char json[] =
        "{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":{\"diff_ids\":[\"a\"]},"
        "\"config\":{\"Env\":[\"A=b\",\"C=\"],\"User\":\"app\",\"WorkingDir\":\"/"
        "srv\",\"Cmd\":[\"x\"],"
        "\"Entrypoint\":null,\"Labels\":{\"l\":\"v\"}}}";
    auto_arena struct arena arena = {0};
    struct image_settings settings;

    OK(image_settings_parse(str_of(json), STR("amd64"), 1, &arena, &settings, &err));
    CHECK_INT(settings.env_count, 2);
    CHECK_STR(settings.env[1], "C=");
    CHECK_STR(settings.user, "app");
    CHECK_STR(settings.workdir, "/srv");
    CHECK_INT(settings.cmd_count, 1);
    CHECK_INT(settings.entrypoint_count, 0);
    CHECK_STR(settings.labels[0].value, "v");
    FAILS(image_settings_parse(str_of(json), STR("arm64"), 1, &arena, &settings, &err),
          ERROR_UNSUPPORTED, "it is for linux/amd64");
    FAILS(image_settings_parse(str_of(json), STR("amd64"), 2, &arena, &settings, &err),
          ERROR_INVALID, "disagree");
    OK(image_settings_parse(STR("{}"), STR("amd64"), 2, &arena, &settings, &err));
    FAILS(image_settings_parse(STR("{\"config\":{\"Env\":[\"A\\nB=c\"]}}"), STR("amd64"), 2, &arena,
                               &settings, &err),
          ERROR_INVALID, "the image's Env: 'A\\nB' is not a valid name");
    FAILS(image_settings_parse(STR("{\"config\":{\"Env\":[1]}}"), STR("amd64"), 2, &arena,
                               &settings, &err),
          ERROR_INVALID, "Env");
}
