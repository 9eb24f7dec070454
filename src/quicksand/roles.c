/* The rows of the command line's table that are not commands of a client: the server, and its data directory as a whole. */
#include "quicksand/roles.h"
#include "base/alloc.h"
#include "base/cleanup.h"

#include "quicksand/serve.h"

static const struct cli_command serve_role, down_role, backup_role, restore_role, upgrade_role;

const struct cli_command *const quicksand_roles[] = {&serve_role,   &down_role,    &backup_role,
                                                     &restore_role, &upgrade_role, NULL};

struct teller {
    const struct cli *cli;
    bool all; /* else only what says which data directory is meant */
};

static void tell_setting(void *arg, const char *key, const char *value, const char *fallback,
                         const char *help, bool live)
{
    const struct teller *teller = arg;
    auto_free char *text = fallback[0] ? xasprintf("%s [%s]", help, fallback) : xstrdup(help);
    const struct cli_option option = {
        .name = key, .kind = CLI_TEXT, .value = "VALUE", .help = text};

    if (teller->all || strcmp(key, "data") == 0 || strcmp(key, "uid") == 0)
        teller->cli->visit(teller->cli->visit_arg, &option);
    (void)value;
    (void)live;
}

static void tell_options(const struct cli *cli, const struct cli_command *role)
{
    static const struct cli_option more[] = {
        {"config", 0, CLI_TEXT, NULL, "FILE", "file with settings"},
        {"help", 'h', CLI_FLAG, NULL, NULL, "show this text"},
    };
    static const struct cli_option
        sample = {"print-config", 0, CLI_FLAG, NULL, NULL, "print such a file and do nothing else"},
        check = {"check", 0, CLI_FLAG, NULL, NULL, "only tell; must be given"};
    struct teller teller = {cli, role == &serve_role};

    if (role == &upgrade_role)
        cli->visit(cli->visit_arg, &check);
    config_each(NULL, tell_setting, &teller);
    if (role == &serve_role)
        cli->visit(cli->visit_arg, &sample);
    for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
        cli->visit(cli->visit_arg, &more[i]);
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int run_role(struct cli *cli, int argc, char **argv)
{
    const struct cli_command *role = &serve_role;

    for (const struct cli_command *const *at = quicksand_roles; *at; at++)
        if (strcmp((*at)->name, argv[0]) == 0)
            role = *at;
    if (cli->visit) {
        tell_options(cli, role);
        return CLI_OK;
    }
    if (wants_help(argc, argv)) {
        cli_help(cli, role);
        return CLI_OK;
    }
    if (role == &serve_role)
        return serve_main(argc - 1, argv + 1);
    if (role == &down_role)
        return serve_down(argc - 1, argv + 1);
    return keep_main(role->name, argc - 1, argv + 1);
}

static const struct cli_command serve_role = {
    "serve", "[OPTION...]",
    "Run the server.\n"
    "Each option can also be set as QUICKSAND_NAME in the environment (upper case, '_' for '-') "
    "or\n"
    "as 'name = value' in the file given by --config.",
    run_role,
    .examples = "quicksand serve --listen 127.0.0.1:3000 --data /var/lib/quicksand\n"
                "quicksand serve --print-config >quicksand.conf"};
static const struct cli_command down_role = {
    "down", "[OPTION...]",
    "End all sandboxes of a server that is gone, and what is left of it.\n"
    "Those of a data directory that no server uses any more, with their mounts, cgroups and "
    "network.\n"
    "The files in the data directory stay, and the next server finds paused sandboxes, snapshots\n"
    "and volumes there. Other options of 'quicksand serve' are taken too, and mean nothing here.",
    run_role, .examples = "quicksand down\nquicksand down --data /srv/quicksand"};
static const struct cli_command backup_role = {
    "backup", "FILE [OPTION...]",
    "Write all that a server keeps to a file; it may be running.\n"
    "That is the store with teams and keys, certificates, templates, snapshots, volumes and "
    "paused\n"
    "sandboxes; what runs in sandboxes is not in it. FILE has secrets: it is readable by root "
    "only.",
    run_role,
    .examples = "quicksand backup /mnt/monday.qsb\n"
                "quicksand backup monday.qsb --data /srv/quicksand"};
static const struct cli_command restore_role = {
    "restore", "FILE [OPTION...]",
    "Make a data directory of such a file.\n"
    "On the host where 'quicksand backup' wrote it or another. The directory must be empty or not\n"
    "there; no server may use it. FILE is checked before anything is written.",
    run_role,
    .examples = "quicksand restore monday.qsb --data /srv/restored && quicksand serve --data "
                "/srv/restored"};
static const struct cli_command upgrade_role = {
    "upgrade", "--check [OPTION...]",
    "Tell whether this program can serve a data directory.\n"
    "And what its first start will change there. Exit status 0: it can. 1: it cannot, and why.\n"
    "Nothing is changed.",
    run_role, .examples = "quicksand upgrade --check"};
