/* tls acme: a certificate from a public authority, put where the server takes it from. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/process.h"
#include "cli/command/cli_tls_files.h"
#include "cli/core/cli_command.h"
#include "extra/acme/acme.h"
#include "extra/acme/cli_tls_acme.h"
#include "protocol/tls/tls_make.h"

enum { RENEW_DAYS = 30, HOOK_MS = 600 * 1000 };
#define DAY_US (INT64_C(86400) * 1000000)

struct acme {
    struct cli *cli;
    const char *domain, *email, *directory, *ca_file, *hook;
    bool wildcard, force;
};

static cli_command_fn run_acme;

const struct cli_command cli_tls_acme_command = {
    "tls acme", "--domain DOMAIN [OPTION...]",
    "Get a certificate from a public authority (ACME), and have the server use it.\n"
    "The authority looks at http://DOMAIN/ on port 80, which the server has to serve (--listen "
    ":80);\n"
    "with --hook it looks into DNS instead: PROGRAM set|clear NAME VALUE makes and removes TXT "
    "records,\n"
    "and returns when they are visible. To be run every day: nothing is asked for before the last "
    "30\n"
    "days of the certificate. Using it means to agree to the authority's terms of service.",
    run_acme,
    .examples = "  sudo quicksand tls acme --domain example.com --wildcard --hook "
                "/etc/quicksand/dns-hook\n"};

/* ---- showing that the domain is ours ---- */

/* It is the operator's own program: with the operator's environment and output. */
static int run_hook(const struct acme *acme, const char *verb,
                    const struct acme_challenge *challenge, struct error *err)
{
    auto_free char *name = xasprintf("_acme-challenge.%s", challenge->domain);
    const char *argv[] = {acme->hook, verb, name, challenge->value, NULL};
    int r;

    (void)fflush(stdout);
    r = process_run(&(struct process_spec){.argv = argv, .path = acme->hook}, HOOK_MS);
    if (r < 0)
        return error_set_errno(err, -r, "run '%s'", acme->hook);
    return r == 0 ? 0
                  : error_set(err, ERROR_INTERNAL, "'%s' failed (%s %d)", acme->hook,
                              r < 128 ? "status" : "signal", r < 128 ? r : r - 128);
}

/* The server of this data directory finds the file by its token. */
static int write_challenge(const struct acme *acme, const struct acme_challenge *challenge,
                           struct error *err)
{
    auto_free char *folder = cli_tls_path(acme->cli, "challenges");
    auto_free char *name = xasprintf("challenges/%s", challenge->token);
    int r = path_make_dirs(folder, 0755);

    if (r == 0 && chmod(folder, 0755) < 0)
        r = -errno;
    if (r < 0)
        return error_set_errno(err, -r, "make '%s'", folder);
    return cli_tls_write(acme->cli, name, str_of(challenge->value), false, err);
}

static int show(void *arg, const struct acme_challenge *challenge, struct error *err)
{
    struct acme *acme = arg;

    printf("Showing that %s is ours...\n", challenge->domain);
    return acme->hook ? run_hook(acme, "set", challenge, err)
                      : write_challenge(acme, challenge, err);
}

static void hide(void *arg, const struct acme_challenge *challenge)
{
    struct acme *acme = arg;
    auto_free char *name = xasprintf("challenges/%s", challenge->token);
    auto_free char *path = cli_tls_path(acme->cli, name);
    struct error err;

    if (!acme->hook)
        (void)unlink(path);
    else if (run_hook(acme, "clear", challenge, &err) < 0)
        (void)cli_fail(&err); /* the certificate is none the worse for it */
}

/* ---- the certificate ---- */

/* Is there one that will do for a while? */
static bool is_good(const struct acme *acme)
{
    auto_free char *below = xasprintf("x.%s", acme->domain);
    auto_buf struct buf text = {0};
    struct tls_facts own, wide = {.matches = true};
    struct error err;

    if (acme->force || cli_tls_read(acme->cli, "cert.pem", &text, &err) < 0 ||
        tls_make_facts(buf_str(&text), acme->domain, &own, &err) < 0 ||
        (acme->wildcard && tls_make_facts(buf_str(&text), below, &wide, &err) < 0))
        return false;
    if (!own.matches || !wide.matches || own.ends_us < clock_wall_us() + RENEW_DAYS * DAY_US)
        return false;
    printf("The certificate for %s is good for %lld more days; --force gets another.\n",
           acme->domain, (long long)((own.ends_us - clock_wall_us()) / DAY_US));
    return true;
}

static int load_account(const struct acme *acme, struct buf *out, struct error *err)
{
    if (cli_tls_read(acme->cli, "acme-account.key", out, err) == 0)
        return 0;
    if (err->code != ERROR_NOT_FOUND || acme_make_key(out, err) < 0)
        return -1;
    return cli_tls_write(acme->cli, "acme-account.key", buf_str(out), true, err);
}

static int keep(const struct acme *acme, const struct buf *chain, const struct buf *key,
                struct error *err)
{
    auto_buf struct buf said = {0};

    if (cli_tls_write(acme->cli, "key.pem", buf_str(key), true, err) < 0 ||
        cli_tls_write(acme->cli, "cert.pem", buf_str(chain), false, err) < 0 ||
        cli_tls_write(acme->cli, "domain", str_of(acme->domain), false, err) < 0)
        return -1;
    printf("Certificate for %s: %s/tls/cert.pem\n", acme->domain, acme->cli->data_dir);
    buf_init(&said, 8192);
    if (cli_tls_reload(acme->cli, &said, err) == 0)
        printf("The server that runs here uses it.\n");
    else if (err->code != ERROR_NOT_FOUND)
        return -1;
    return 0;
}

/* A folder has certificates of one origin. */
static int check_folder(const struct acme *acme, struct error *err)
{
    auto_free char *authority = cli_tls_path(acme->cli, "ca.pem");

    if (access(authority, F_OK) == 0)
        return error_set(err, ERROR_CONFLICT,
                         "'%s/tls' has an authority of our own ('quicksand tls init'): remove that "
                         "folder first",
                         acme->cli->data_dir);
    return cli_tls_make_dir(acme->cli, err);
}

static int obtain(struct acme *acme, struct error *err)
{
    auto_free char *wide = xasprintf("*.%s", acme->domain);
    const char *names[] = {acme->domain, wide};
    auto_buf struct buf account = {0}, chain = {0}, key = {0};
    struct acme_config config = {
        .directory = acme->directory,
        .email = acme->email,
        .ca_file = acme->ca_file,
        .names = names,
        .name_count = acme->wildcard ? 2 : 1,
        .dns = acme->hook != NULL,
        .show = show,
        .hide = hide,
        .arg = acme,
    };
    int r;

    if (check_folder(acme, err) < 0)
        return -1;
    if (is_good(acme))
        return 0;
    if (load_account(acme, &account, err) < 0)
        return -1;
    config.account_key = buf_str(&account);
    r = acme_obtain(&config, &chain, &key, err);
    if (r == 0)
        r = keep(acme, &chain, &key, err);
    if (key.p)
        explicit_bzero(key.p, key.len);
    return r;
}

static int check(const struct acme *acme)
{
    if (!acme->domain || !acme->domain[0])
        return cli_usage(&cli_tls_acme_command, "needs --domain");
    if (acme->wildcard && !acme->hook)
        return cli_usage(&cli_tls_acme_command,
                         "a wildcard is given only for a record in DNS: needs --hook");
    if (acme->hook && acme->hook[0] != '/')
        return cli_usage(&cli_tls_acme_command, "--hook needs the whole path of the program");
    if (acme->hook && access(acme->hook, X_OK) < 0)
        return cli_usage(&cli_tls_acme_command, "--hook: '%s' cannot be run: %s", acme->hook,
                         strerror(errno));
    if (acme->email && !strchr(acme->email, '@'))
        return cli_usage(&cli_tls_acme_command, "--email needs an address, not '%s'", acme->email);
    if (acme->ca_file && access(acme->ca_file, R_OK) < 0)
        return cli_usage(&cli_tls_acme_command, "--ca: '%s' cannot be read: %s", acme->ca_file,
                         strerror(errno));
    return CLI_OK;
}

static int run_acme(struct cli *cli, int argc, char **argv)
{
    struct acme acme = {.cli = cli, .directory = ACME_LETS_ENCRYPT};
    const struct cli_option table[] = {
        {"domain", 0, CLI_TEXT, &acme.domain, "DOMAIN", "what the certificate is for"},
        {"wildcard", 0, CLI_FLAG, &acme.wildcard, NULL, "and for everything below it"},
        {"hook", 0, CLI_TEXT, &acme.hook, "PROGRAM", "makes and removes records in DNS"},
        {"email", 0, CLI_TEXT, &acme.email, "ADDRESS", "where the authority can reach you"},
        {"directory", 0, CLI_TEXT, &acme.directory, "URL", "the authority (Let's Encrypt)"},
        {"ca", 0, CLI_TEXT, &acme.ca_file, "FILE", "certificates to trust it by, besides"},
        {"force", 0, CLI_FLAG, &acme.force, NULL, "also when there is a good one"},
        {"data", 0, CLI_TEXT, &cli->data_dir, "DIR", "the server's data directory"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_tls_acme_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_tls_acme_command, "takes no operand");
    rc = check(&acme);
    if (rc != CLI_OK)
        return rc;
    return obtain(&acme, &err) < 0 ? cli_fail(&err) : CLI_OK;
}
