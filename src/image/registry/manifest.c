#include "image/registry/manifest.h"

#include <jansson.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "base/env_name.h"
#include "image/registry/reference.h"

const char manifest_accept[] = "application/vnd.oci.image.index.v1+json, "
                               "application/vnd.oci.image.manifest.v1+json, "
                               "application/vnd.docker.distribution.manifest.list.v2+json, "
                               "application/vnd.docker.distribution.manifest.v2+json";

static const int64_t blob_max = INT64_C(1) << 36;

struct str manifest_architecture(void)
{
    static struct utsname name;

    (void)uname(&name);
    if (strcmp(name.machine, "x86_64") == 0)
        return STR("amd64");
    if (strcmp(name.machine, "aarch64") == 0)
        return STR("arm64");
    return str_of(name.machine);
}

static void decref(json_t **json)
{
    json_decref(*json);
}
#define auto_json __attribute__((cleanup(decref)))

static struct str text_of(const json_t *json)
{
    return json_is_string(json) ? str_n(json_string_value(json), json_string_length(json))
                                : STR_NONE;
}

static int load(struct str text, const char *what, json_t **out, struct error *err)
{
    json_error_t why;

    *out = json_loadb(text.p ? text.p : "", text.len, 0, &why);
    if (!json_is_object(*out))
        return error_set(err, ERROR_INVALID, "the %s is no JSON object", what);
    return 0;
}

static int read_descriptor(const json_t *json, const char *what, struct arena *arena,
                           struct descriptor *out, struct error *err)
{
    struct str digest = text_of(json_object_get(json, "digest"));
    const json_t *size = json_object_get(json, "size");

    if (!digest_ok(digest))
        return error_set(err, ERROR_INVALID, "the %s has no sha256 digest", what);
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        json_integer_value(size) > blob_max)
        return error_set(err, ERROR_INVALID, "the %s has no valid size", what);
    *out = (struct descriptor){arena_str(arena, digest), json_integer_value(size)};
    return 0;
}

/* ---- indexes ---- */

static bool for_platform(const json_t *platform, struct str architecture)
{
    struct str variant = text_of(json_object_get(platform, "variant"));

    if (!str_is(text_of(json_object_get(platform, "os")), "linux") ||
        !str_eq(text_of(json_object_get(platform, "architecture")), architecture))
        return false;
    /* Others than the plain ones may need instructions that this machine lacks. */
    return variant.len == 0 || str_is(variant, "v1") || str_is(variant, "v8");
}

static int choose(const json_t *manifests, struct str architecture, struct arena *arena,
                  struct manifest *out, struct error *err)
{
    const json_t *one;
    size_t i;

    json_array_foreach (manifests, i, one) {
        const json_t *platform = json_object_get(one, "platform");

        if (for_platform(platform, architecture))
            return read_descriptor(one, "manifest in the index", arena, &out->chosen, err);
    }
    /* One without platforms, as tools write it for a single image. */
    one = json_array_get(manifests, 0);
    if (json_array_size(manifests) == 1 && !json_object_get(one, "platform"))
        return read_descriptor(one, "manifest in the index", arena, &out->chosen, err);
    return error_set(err, ERROR_NOT_FOUND, "it is not there for linux/%.*s", STR_ARG(architecture));
}

/* ---- manifests ---- */

static int check_layer_type(struct str type, struct error *err)
{
    static const char *const known[] = {
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (str_is(type, known[i]))
            return 0;
    if (str_find_str(type, STR("foreign")) >= 0 || str_find_str(type, STR("nondistributable")) >= 0)
        return error_set(err, ERROR_UNSUPPORTED,
                         "a layer is not in the registry but elsewhere ('%.*s')",
                         (int)(type.len < 80 ? type.len : 80), type.p);
    return error_set(err, ERROR_UNSUPPORTED, "a layer is of the unknown type '%.*s'",
                     (int)(type.len < 80 ? type.len : 80), type.p ? type.p : "");
}

static int read_layers(const json_t *layers, struct arena *arena, struct manifest *out,
                       struct error *err)
{
    const json_t *one;
    size_t i;

    if (!json_is_array(layers) || json_array_size(layers) == 0)
        return error_set(err, ERROR_INVALID, "the manifest has no layers");
    if (json_array_size(layers) > MANIFEST_LAYERS_MAX)
        return error_set(err, ERROR_LIMIT, "it has %zu layers, more than %d",
                         json_array_size(layers), MANIFEST_LAYERS_MAX);
    out->layer_count = json_array_size(layers);
    out->layers = arena_alloc(arena, out->layer_count * sizeof(*out->layers));
    json_array_foreach (layers, i, one)
        if (check_layer_type(text_of(json_object_get(one, "mediaType")), err) < 0 ||
            read_descriptor(one, "layer", arena, &out->layers[i], err) < 0)
            return -1;
    return 0;
}

int manifest_parse(struct str json, struct str architecture, struct arena *arena,
                   struct manifest *out, struct error *err)
{
    auto_json json_t *root = NULL;
    const json_t *version;

    *out = (struct manifest){0};
    if (load(json, "manifest", &root, err) < 0)
        return -1;
    version = json_object_get(root, "schemaVersion");
    if (json_integer_value(version) != 2)
        return error_set(err, ERROR_UNSUPPORTED, "its manifest is of an old or unknown version");
    if (json_object_get(root, "manifests")) {
        out->is_index = true;
        return choose(json_object_get(root, "manifests"),
                      architecture.p ? architecture : manifest_architecture(), arena, out, err);
    }
    if (read_descriptor(json_object_get(root, "config"), "configuration", arena, &out->config,
                        err) < 0)
        return -1;
    return read_layers(json_object_get(root, "layers"), arena, out, err);
}

/* ---- settings ---- */

static int read_texts(const json_t *config, const char *name, struct arena *arena,
                      const struct str **out, size_t *out_count, struct error *err)
{
    const json_t *list = json_object_get(config, name), *one;
    struct str *texts;
    size_t i;

    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > MANIFEST_TEXTS_MAX)
        return error_set(err, ERROR_INVALID, "the image's '%s' is no list, or too long", name);
    texts = arena_alloc(arena, (json_array_size(list) + 1) * sizeof(*texts));
    json_array_foreach (list, i, one) {
        if (!json_is_string(one))
            return error_set(err, ERROR_INVALID, "the image's '%s' is no list of texts", name);
        texts[i] = arena_str(arena, text_of(one));
    }
    *out = texts;
    *out_count = json_array_size(list);
    return 0;
}

static void read_labels(json_t *config, struct arena *arena, struct image_settings *out)
{
    json_t *labels = json_object_get(config, "Labels"), *value;
    const char *name;

    if (!json_is_object(labels) || json_object_size(labels) > MANIFEST_TEXTS_MAX)
        return;
    out->labels = arena_alloc(arena, (json_object_size(labels) + 1) * sizeof(*out->labels));
    json_object_foreach (labels, name, value)
        if (json_is_string(value))
            out->labels[out->label_count++] =
                (struct pair){arena_str(arena, str_of(name)), arena_str(arena, text_of(value))};
}

static int check_platform(const json_t *root, struct str architecture, struct error *err)
{
    struct str has = text_of(json_object_get(root, "architecture")),
               os = text_of(json_object_get(root, "os"));

    if ((os.len > 0 && !str_is(os, "linux")) || (has.len > 0 && !str_eq(has, architecture)))
        return error_set(err, ERROR_UNSUPPORTED, "it is for %.*s/%.*s, not for linux/%.*s",
                         STR_ARG(os), STR_ARG(has), STR_ARG(architecture));
    return 0;
}

static int check_env(const struct image_settings *settings, struct error *err)
{
    for (size_t i = 0; i < settings->env_count; i++) {
        struct str rest = settings->env[i];

        if (env_name_check("the image's Env", str_split(&rest, '='), err) < 0)
            return -1;
    }
    return 0;
}

int image_settings_parse(struct str json, struct str architecture, size_t layer_count,
                         struct arena *arena, struct image_settings *out, struct error *err)
{
    auto_json json_t *root = NULL;
    json_t *config, *rootfs;
    struct str text;

    *out = (struct image_settings){.user = STR(""), .workdir = STR("")};
    if (load(json, "configuration", &root, err) < 0 ||
        check_platform(root, architecture.p ? architecture : manifest_architecture(), err) < 0)
        return -1;
    rootfs = json_object_get(json_object_get(root, "rootfs"), "diff_ids");
    if (rootfs && json_array_size(rootfs) != layer_count)
        return error_set(err, ERROR_INVALID,
                         "manifest and configuration disagree about the number of layers");
    config = json_object_get(root, "config");
    if (!json_is_object(config))
        return 0;
    text = text_of(json_object_get(config, "User"));
    out->user = text.p ? arena_str(arena, text) : STR("");
    text = text_of(json_object_get(config, "WorkingDir"));
    out->workdir = text.p ? arena_str(arena, text) : STR("");
    read_labels(config, arena, out);
    if (read_texts(config, "Env", arena, &out->env, &out->env_count, err) < 0 ||
        check_env(out, err) < 0 ||
        read_texts(config, "Entrypoint", arena, &out->entrypoint, &out->entrypoint_count, err) <
            0 ||
        read_texts(config, "Cmd", arena, &out->cmd, &out->cmd_count, err) < 0)
        return -1;
    return read_texts(config, "Shell", arena, &out->shell, &out->shell_count, err);
}
