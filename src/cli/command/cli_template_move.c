/* template push, pull, export, import: templates move from server to server as images. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "cli/build/build.h"
#include "cli/build/move.h"
#include "cli/command/cli_template.h"
#include "protocol/json/json_shape.h"

#include <fcntl.h>

/* Where a registry is and who asks it. */
struct remote {
    bool plain;
    const char *user; /* his password is in the environment */
    struct registry *registry;
    struct reference reference;
    struct registry_login_words login;
    char dir[64];
};

#define REMOTE_OPTIONS(remote)                                                            \
    {"plain-http", 0, CLI_FLAG, &(remote).plain, NULL, "the registry speaks plain HTTP"}, \
    {                                                                                     \
        "user", 'u', CLI_TEXT, &(remote).user, "NAME",                                    \
            "user at the registry; the password is in $QUICKSAND_REGISTRY_PASSWORD"       \
    }

static int remote_open(struct remote *remote, const char *name, struct error *err)
{
    const char *known = getenv("QUICKSAND_REGISTRY_MIRRORS"),
               *password = getenv("QUICKSAND_REGISTRY_PASSWORD");
    auto_free char *mirrors = NULL;

    if (reference_parse(str_of(name), &remote->reference, err) < 0)
        return -1;
    if (remote->user && !password)
        return error_set(err, ERROR_INVALID,
                         "--user needs a password: QUICKSAND_REGISTRY_PASSWORD is not set");
    if (remote->user)
        remote->login = (struct registry_login_words){str_of(remote->user), str_of(password)};
    (void)snprintf(remote->dir, sizeof(remote->dir), "/tmp/quicksand-registry-XXXXXX");
    if (!mkdtemp(remote->dir))
        return error_set(err, ERROR_INTERNAL, "cannot make a directory in /tmp");
    mirrors = remote->plain ? xasprintf("%s,%s=http://%s", known ? known : "",
                                        remote->reference.host, remote->reference.host)
                            : xstrdup(known ? known : "");
    return registry_open(
        &(struct registry_config){.blobs = remote->dir, .mirrors = mirrors, .stall_ms = 60 * 1000},
        &remote->registry, err);
}

static void remote_close(struct remote *remote)
{
    registry_close(remote->registry);
    if (remote->dir[0])
        (void)path_remove_tree(AT_FDCWD, remote->dir);
}

static void tell(const struct cli *cli, const char *what, const char *name, const char *digest)
{
    if (cli->json) {
        json_t *json = json_pack("{s:s,s:s}", "name", name, "digest", digest);

        (void)json_dumpf(json, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(json);
    } else {
        printf("%s %s %s\n", what, name, digest);
    }
}

static int push(struct cli *cli, const char *name, const char *to, struct remote *remote,
                struct error *err)
{
    struct moved moved;
    int r;

    if (remote_open(remote, to, err) < 0 || cli_connect(cli, err) < 0)
        return -1;
    r = move_get(cli, name, &moved, err);
    if (r == 0)
        r = registry_push(remote->registry, &remote->reference, &remote->login, moved.parts,
                          MOVE_PARTS, str_of(moved.manifest), MOVE_MANIFEST_TYPE, err);
    if (r == 0)
        tell(cli, "pushed", to, moved.digest);
    move_done(&moved);
    return r;
}

static int run_push(struct cli *cli, int argc, char **argv)
{
    struct remote remote = {0};
    const struct cli_option table[] = {REMOTE_OPTIONS(remote), {.name = NULL}};
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_template_push, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&cli_template_push, "needs a template and the name of an image");
    rc = push(cli, operands[0], operands[1], &remote, &err) < 0 ? cli_fail(&err) : CLI_OK;
    remote_close(&remote);
    return rc;
}

static int run_export(struct cli *cli, int argc, char **argv)
{
    const struct cli_option table[] = {{.name = NULL}};
    struct error err = {0};
    struct moved moved;
    char **operands;
    int count, rc = cli_args(cli, &cli_template_export, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&cli_template_export, "needs a template and a file");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    rc = move_get(cli, operands[0], &moved, &err);
    if (rc == 0)
        rc = move_write(&moved, operands[1], &err);
    if (rc == 0 && operands[1][0] != '-')
        tell(cli, "wrote", operands[1], moved.digest);
    move_done(&moved);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}

/* What the labels say, and the rest of a build. */
static int build_moved(struct cli *cli, const json_t *labels, const char *name, const char *archive,
                       const char *image)
{
    struct build_wish wish = {.name = name, .context = "/nonexistent", .archive = archive};
    struct move_settings settings;
    int rc;

    move_settings_read(labels, &settings);
    if (image)
        (void)json_object_set_new(settings.recipe, "fromImage", json_string(image));
    wish.recipe = settings.recipe;
    wish.cpu = settings.cpu;
    wish.memory_mb = settings.memory_mb;
    wish.disk_mb = settings.disk_mb;
    rc = build_template(cli, &wish);
    json_decref(settings.recipe);
    return rc;
}

static int run_import(struct cli *cli, int argc, char **argv)
{
    const struct cli_option table[] = {{.name = NULL}};
    auto_json json_t *labels = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_template_import, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&cli_template_import, "needs a file and a name");
    if (move_labels(operands[0], &labels, &err) < 0)
        return cli_fail(&err);
    return build_moved(cli, labels, operands[1], operands[0], NULL);
}

static int remote_labels(struct remote *remote, const char *name, json_t **out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct registry_image image;

    if (remote_open(remote, name, err) < 0 ||
        registry_resolve(remote->registry, &remote->reference, &remote->login, NULL, &arena, &image,
                         err) < 0)
        return -1;
    *out = json_object();
    for (size_t i = 0; i < image.settings.label_count; i++)
        (void)json_object_set_new(*out, image.settings.labels[i].name.p,
                                  json_str(image.settings.labels[i].value));
    return 0;
}

static int run_pull(struct cli *cli, int argc, char **argv)
{
    struct remote remote = {0};
    const struct cli_option table[] = {REMOTE_OPTIONS(remote), {.name = NULL}};
    auto_json json_t *labels = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_template_pull, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&cli_template_pull, "needs the name of an image and one for the template");
    rc = remote_labels(&remote, operands[0], &labels, &err) < 0
             ? cli_fail(&err)
             : build_moved(cli, labels, operands[1], NULL, operands[0]);
    remote_close(&remote);
    return rc;
}

const struct cli_command cli_template_push = {
    "template push", "[OPTION...] TEMPLATE IMAGE",
    "Put a template or snapshot into a registry, as an image with its settings in labels.",
    run_push, .examples = "quicksand template push my-app registry.example/team/my-app:1"};
const struct cli_command cli_template_pull = {
    "template pull", "[OPTION...] IMAGE NAME",
    "Make a template of an image. The server fetches it; settings of a pushed template are taken.",
    run_pull, .examples = "quicksand template pull registry.example/team/my-app:1 my-app"};
const struct cli_command cli_template_export = {
    "template export", "[OPTION...] TEMPLATE FILE",
    "Write a template or snapshot to a file, as an OCI archive (- is stdout).", run_export,
    .examples = "quicksand template export my-app my-app.tar\n"
                "podman run --rm oci-archive:my-app.tar"};
const struct cli_command cli_template_import = {
    "template import", "[OPTION...] FILE NAME",
    "Make a template of an exported one, or of any OCI archive or docker save.", run_import,
    .examples = "quicksand template import my-app.tar my-app"};
