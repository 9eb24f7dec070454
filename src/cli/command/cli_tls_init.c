/* tls: certificates for the server of this host. They are files in its data directory: whoever may write there (root)
 * may make them. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/process.h"
#include "cli/command/cli_tls_files.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_table.h"
#include "protocol/tls/tls_make.h"

/* Some clients trust no certificate that lives longer. */
enum { DAYS = 397, DOMAIN_MAX = 253 };

static cli_command_fn run_init, run_reload;

static const struct cli_command init_command = {
    "tls init", "--domain DOMAIN [OPTION...]",
    "Make a certificate for a domain and everything below it, and an authority that signs it.\n"
    "The authority can sign for that domain only. Clients have to trust it: --trust does so on "
    "this\n"
    "host. Once more with the same domain renews the certificate.",
    run_init,
    .examples = "  sudo quicksand tls init --domain sandbox.localhost --trust\n"
                "  sudo quicksand serve --domain sandbox.localhost --listen-tls 127.0.0.1:443\n"};
static const struct cli_command reload_command = {
    "tls reload", "[OPTION...]",
    "Have the server of this host read its certificates and keys again. No connection is cut.",
    run_reload, .examples = "quicksand tls reload"};

/* ---- the authority ---- */

static int load_authority(const struct cli *cli, const char *domain, struct tls_made *out,
                          struct error *err)
{
    auto_buf struct buf known = {0};

    if (cli_tls_read(cli, "domain", &known, err) < 0)
        return -1;
    if (!str_is(str_trim(buf_str(&known)), domain))
        return error_set(err, ERROR_CONFLICT,
                         "'%s/tls' is for '%.*s': use another data directory, or remove that "
                         "folder first (clients have to trust the new authority then)",
                         cli->data_dir, STR_ARG(str_trim(buf_str(&known))));
    if (cli_tls_read(cli, "ca.pem", &out->certificate, err) < 0)
        return -1;
    return cli_tls_read(cli, "ca.key", &out->key, err);
}

static int make_authority(const struct cli *cli, const char *domain, struct tls_made *out,
                          struct error *err)
{
    if (tls_make_authority(domain, out, err) < 0 || cli_tls_make_dir(cli, err) < 0 ||
        cli_tls_write(cli, "ca.key", buf_str(&out->key), true, err) < 0 ||
        cli_tls_write(cli, "ca.pem", buf_str(&out->certificate), false, err) < 0)
        return -1;
    return cli_tls_write(cli, "domain", str_of(domain), false, err);
}

static int find_authority(const struct cli *cli, const char *domain, struct tls_made *out,
                          struct error *err)
{
    if (load_authority(cli, domain, out, err) == 0)
        return 0;
    if (err->code != ERROR_NOT_FOUND)
        return -1;
    tls_made_done(out);
    return make_authority(cli, domain, out, err);
}

static int make_certificate(const struct cli *cli, const struct tls_made *authority,
                            const char *domain, struct error *err)
{
    auto_free char *wildcard = xasprintf("*.%s", domain);
    const char *names[] = {domain, wildcard, "localhost", "127.0.0.1", "::1"};
    struct tls_made made = {0};
    int r = tls_make_certificate(authority, names, 5, DAYS, &made, err);

    if (r == 0)
        r = cli_tls_write(cli, "key.pem", buf_str(&made.key), true, err);
    if (r == 0)
        r = cli_tls_write(cli, "cert.pem", buf_str(&made.certificate), false, err);
    tls_made_done(&made);
    return r;
}

/* ---- trust ---- */

static const struct {
    const char *folder, *program, *argument;
} stores[] = {
    {"/usr/local/share/ca-certificates", "update-ca-certificates", NULL},
    {"/etc/pki/ca-trust/source/anchors", "update-ca-trust", "extract"},
};

static int trust_in(size_t i, const char *domain, struct str certificate, struct error *err)
{
    auto_free char *path = xasprintf("%s/quicksand-%s.crt", stores[i].folder, domain);
    auto_buf struct buf said = {0};
    FILE *file = fopen(path, "we");
    bool ok = file && fwrite(certificate.p, 1, certificate.len, file) == certificate.len;
    int status;

    if (file && fclose(file) != 0)
        ok = false;
    if (!ok || chmod(path, 0644) < 0)
        return error_set(err, ERROR_INTERNAL, "'%s' cannot be written", path);
    buf_init(&said, 4096);
    status = program_run(&(struct program){.name = stores[i].program,
                                           .package = "ca-certificates",
                                           .args = {stores[i].argument}},
                         &said, err);
    if (status < 0)
        return -1;
    if (status)
        return error_set(err, ERROR_INTERNAL, "%s failed with status %d: %.*s", stores[i].program,
                         status, STR_ARG(str_trim(buf_str(&said))));
    printf("This host trusts it now (%s; to end that, remove the file and run %s).\n", path,
           stores[i].program);
    return 0;
}

static int trust(const char *domain, struct str certificate, struct error *err)
{
    for (size_t i = 0; i < sizeof(stores) / sizeof(*stores); i++)
        if (access(stores[i].folder, F_OK) == 0)
            return trust_in(i, domain, certificate, err);
    return error_set(err, ERROR_UNSUPPORTED,
                     "this host has no store of authorities that is known here; install the "
                     "package ca-certificates, or trust the file by hand");
}

/* ---- the commands ---- */

static int check_domain(const char *domain)
{
    if (!domain || !domain[0])
        return cli_usage(&init_command, "needs --domain");
    if (!strchr(domain, '.') || strlen(domain) > DOMAIN_MAX)
        return cli_usage(&init_command,
                         "'%s' needs a dot: clients take no wildcard for the whole of a top level; "
                         "sandbox.localhost is a domain that leads to this host nearly everywhere",
                         domain);
    return CLI_OK;
}

static void tell(const struct cli *cli, const char *domain)
{
    auto_free char *authority = cli_tls_path(cli, "ca.pem");

    printf("\nServe it:        quicksand serve --domain %s --listen-tls :443\n"
           "Clients on this host and elsewhere need the authority's certificate:\n"
           "  Node.js        export NODE_EXTRA_CA_CERTS=%s\n"
           "  Python, curl   export SSL_CERT_FILE=%s\n",
           domain, authority, authority);
}

static int init(struct cli *cli, const char *domain, bool trusts, struct error *err)
{
    struct tls_made authority = {0};
    auto_buf struct buf said = {0};
    int r = find_authority(cli, domain, &authority, err);

    if (r == 0)
        r = make_certificate(cli, &authority, domain, err);
    if (r == 0)
        printf("Certificate for %s, *.%s and localhost: %s/tls/cert.pem\n"
               "Authority that signed it:               %s/tls/ca.pem\n",
               domain, domain, cli->data_dir, cli->data_dir);
    if (r == 0 && trusts)
        r = trust(domain, buf_str(&authority.certificate), err);
    tls_made_done(&authority);
    if (r < 0)
        return -1;
    buf_init(&said, 8192);
    if (cli_tls_reload(cli, &said, err) == 0)
        printf("The server that runs here uses it.\n");
    else if (err->code != ERROR_NOT_FOUND)
        return -1;
    tell(cli, domain);
    return 0;
}

static int run_init(struct cli *cli, int argc, char **argv)
{
    const char *domain = NULL;
    bool trusts = false;
    const struct cli_option table[] = {
        {"domain", 0, CLI_TEXT, &domain, "DOMAIN", "what the certificate is for"},
        {"trust", 0, CLI_FLAG, &trusts, NULL, "have this host trust the authority"},
        {"data", 0, CLI_TEXT, &cli->data_dir, "DIR", "the server's data directory"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &init_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&init_command, "takes no operand");
    rc = check_domain(domain);
    if (rc != CLI_OK)
        return rc;
    return init(cli, domain, trusts, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static int run_reload(struct cli *cli, int argc, char **argv)
{
    const struct cli_option table[] = {
        {"data", 0, CLI_TEXT, &cli->data_dir, "DIR", "the server's data directory"},
        {.name = NULL},
    };
    auto_buf struct buf said = {0};
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &reload_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&reload_command, "takes no operand");
    buf_init(&said, 8192);
    if (cli_tls_reload(cli, &said, &err) < 0)
        return cli_fail(&err);
    printf("%s", cli_defuse(said.p + strlen("ok\n"), true));
    return CLI_OK;
}

static const struct cli_command *const verbs[] = {&init_command, &reload_command, NULL};
const struct cli_command cli_tls_command = {
    "tls", "init, reload", "Certificates of the server on this host.", .verbs = verbs};
