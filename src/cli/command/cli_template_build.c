/* template build. */
#include "base/extra_absent.h"
#include "cli/build/build.h"
#include "cli/command/cli_template.h"

static int build_all(struct cli *cli, struct build_wish *wish)
{
    int status = CLI_OK;

    for (const struct shipped_recipe *at = shipped_recipes; at->name; at++) {
        int rc;

        wish->shipped = at;
        wish->name = at->name;
        rc = build_template(cli, wish);
        status = rc == CLI_OK ? status : rc;
    }
    return status;
}

static int build_one(struct cli *cli, struct build_wish *wish, char **operands, int count)
{
    bool own = wish->file || wish->archive || wish->config;
    const struct shipped_recipe *shipped = count == 1 && !own ? shipped_find(operands[0]) : NULL;
    const char *extra = count == 1 && !own ? extra_absent("template", str_of(operands[0])) : NULL;
    struct error err;

    if (extra) {
        (void)extra_absent_error(extra, &err);
        return cli_fail(&err);
    }
    wish->name = count > 0 ? operands[0] : NULL;
    wish->context = count > 1 ? operands[1] : ".";
    if (shipped) {
        wish->shipped = shipped;
        if (!cli->json)
            printf("%s is a recipe that comes with quicksand; name a directory to build your own\n",
                   shipped->name);
    }
    return build_template(cli, wish);
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct build_wish wish = {0};
    bool all = false;
    const struct cli_option table[] = {
        {"file", 'f', CLI_TEXT, &wish.file, "FILE",
         "the Dockerfile (CONTEXT/Dockerfile); - is stdin"},
        {"cpu", 0, CLI_COUNT, &wish.cpu, "N", "processors of its sandboxes"},
        {"memory", 0, CLI_MB, &wish.memory_mb, "SIZE", "memory of its sandboxes"},
        {"disk", 0, CLI_MB, &wish.disk_mb, "SIZE", "disk of its sandboxes"},
        {"build-arg", 0, CLI_LIST, &wish.args, "K=V",
         "a value for ARG; K alone is our own variable"},
        {"secret", 0, CLI_LIST, &wish.secrets, "SECRET",
         "id=NAME,src=FILE or id=NAME,env=VARIABLE"},
        {"target", 0, CLI_TEXT, &wish.target, "STAGE", "the stage to build (the last)"},
        {"tag", 't', CLI_LIST, &wish.tags, "TAG", "name of this build (default)"},
        {"no-cache", 0, CLI_FLAG, &wish.no_cache, NULL, "run every step again"},
        {"from-archive", 0, CLI_TEXT, &wish.archive, "PATH",
         "an OCI archive, layout or docker save"},
        {"config", 0, CLI_TEXT, &wish.config, "FILE", "settings (CONTEXT/e2b.toml)"},
        {"all", 0, CLI_FLAG, &all, NULL, "all recipes that come with quicksand"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_template_build, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc == CLI_ARGS_RUN && (all ? count > 0 : count > 2))
        rc = cli_usage(&cli_template_build,
                       all ? "--all takes no operand" : "takes a name and a context");
    for (size_t i = 0; rc == CLI_ARGS_RUN && i < wish.args.count; i++)
        if (!wish.args.items[i][0] || wish.args.items[i][0] == '=')
            rc = cli_usage(&cli_template_build, "--build-arg needs NAME[=VALUE], not '%s'",
                           wish.args.items[i]);
    if (rc == CLI_ARGS_RUN)
        rc = all ? build_all(cli, &wish) : build_one(cli, &wish, operands, count);
    cli_list_done(&wish.args);
    cli_list_done(&wish.secrets);
    cli_list_done(&wish.tags);
    return rc;
}

const struct cli_command cli_template_build = {
    "template build", "[OPTION...] [NAME [CONTEXT]]",
    "Build a template from a Dockerfile, an image on disk, or a recipe that comes with quicksand.\n"
    "Settings that no option says come from CONTEXT/e2b.toml. Ctrl-C cancels the build.",
    run,
    .examples = "quicksand template build my-app .\n"
                "quicksand template build relay-workspace -f Dockerfile --cpu 2 --memory 4096\n"
                "quicksand template build node"};
