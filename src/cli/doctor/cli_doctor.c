/* doctor: the list of requirements and its output. */
#include "cli/doctor/cli_doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/process.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

static const struct {
    const char *name;
    doctor_check_fn *check;
} checks[] = {
    {"root", doctor_root},
    {"kernel", doctor_kernel},
    {"namespaces", doctor_namespaces},
    {"seccomp", doctor_seccomp},
    {"overlayfs", doctor_overlay},
    {"cgroup v2", doctor_cgroup_v2},
    {"controllers", doctor_controllers},
    {"btrfs", doctor_btrfs},
    {"mkfs.btrfs", doctor_mkfs_btrfs},
    {"loop devices", doctor_loop},
    {"CAP_NET_ADMIN", doctor_net_admin},
    {"nftables", doctor_nftables},
    {"nft", doctor_nft},
    {"veth", doctor_veth},
    {"ip_forward", doctor_ip_forward},
    {"forward policy", doctor_forward_policy},
    {"mmdebstrap", doctor_mmdebstrap},
    {"/dev/fuse", doctor_fuse},
    {"programs", doctor_programs},
    {"data directory", doctor_data_dir},
    {"disk space", doctor_disk_space},
    {"kept aside", doctor_kept_aside},
    {"memory", doctor_memory},
    {"open files", doctor_files},
    {"clock", doctor_clock},
    {"docker", doctor_docker},
    {"domain", doctor_domain},
    {"certificate", doctor_certificate},
    {"kernel TLS", doctor_kernel_tls},
};
enum { CHECK_COUNT = sizeof(checks) / sizeof(checks[0]), TRY_TIMEOUT_MS = 60 * 1000 };

static const char *const level_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "FAIL"};

void doctor_ok(struct doctor_result *out, const char *fmt, ...)
{
    va_list args;

    *out = (struct doctor_result){.level = DOCTOR_OK};
    va_start(args, fmt);
    (void)vsnprintf(out->detail, sizeof(out->detail), fmt, args);
    va_end(args);
}

void doctor_bad(struct doctor_result *out, enum doctor_level level, const char *fix,
                const char *fmt, ...)
{
    va_list args;

    *out = (struct doctor_result){.level = level};
    va_start(args, fmt);
    (void)vsnprintf(out->detail, sizeof(out->detail), fmt, args);
    va_end(args);
    (void)snprintf(out->fix, sizeof(out->fix), "%s", fix);
}

bool doctor_needs_root(const struct doctor *doctor, struct doctor_result *out)
{
    if (doctor->root)
        return false;
    doctor_bad(out, DOCTOR_WARN, "sudo quicksand doctor", "not tried without root");
    return true;
}

int doctor_try(process_fn *fn, const struct doctor *doctor)
{
    const struct process_spec spec = {.run = fn, .arg = (void *)(uintptr_t)doctor};
    int r;

    (void)fflush(stdout);
    r = process_run(&spec, TRY_TIMEOUT_MS);
    return r < 0 || r >= 128 ? EIO : r;
}

struct result_row {
    struct str name, level, detail, fix;
};

static const struct json_field result_fields[] = {
    JSON_FIELD(struct result_row, name, "name", 0),
    JSON_FIELD(struct result_row, level, "status", 0),
    JSON_FIELD(struct result_row, detail, "detail", 0),
    JSON_FIELD(struct result_row, fix, "fix", JSON_OMIT_EMPTY),
    JSON_END,
};

static void print_json(const struct doctor_result results[CHECK_COUNT])
{
    auto_json json_t *array = json_array();
    auto_free char *text = NULL;

    for (size_t i = 0; i < CHECK_COUNT; i++) {
        struct result_row row = {
            .name = str_of(checks[i].name),
            .level = results[i].level == DOCTOR_FAIL ? STR("fail")
                                                     : str_of(level_names[results[i].level]),
            .detail = str_of(results[i].detail),
            .fix = results[i].fix[0] ? str_of(results[i].fix) : STR_NONE,
        };

        (void)json_array_append_new(array, json_write(result_fields, &row));
    }
    text = json_text(array);
    printf("%s\n", text);
}

static void print_table(const struct doctor_result results[CHECK_COUNT])
{
    static const char *const columns[] = {"CHECK", "STATE", "DETAIL", NULL};
    struct cli_table *table = cli_table_new(columns);

    for (size_t i = 0; i < CHECK_COUNT; i++) {
        cli_table_add(table, str_of(checks[i].name));
        cli_table_add(table, str_of(level_names[results[i].level]));
        cli_table_add(table, str_of(results[i].detail));
        if (!results[i].fix[0])
            continue;
        cli_table_add(table, STR(""));
        cli_table_add(table, STR(""));
        cli_table_addf(table, "-> %s", results[i].fix);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

/* As the server's setting says: in the environment, else by what a server that was started here has made its own, since
 * this program does not read the server's file of settings. */
static uid_t server_uid(const char *data_dir)
{
    enum { SERVER_UID = 64737 }; /* the setting's default */
    auto_free char *store = xasprintf("%s/store", data_dir);
    const char *given = getenv("QUICKSAND_UID");
    uint64_t uid;
    struct stat st;

    if (given && str_to_u64(str_of(given), &uid) && uid >= 1 && uid <= 65533)
        return (uid_t)uid;
    return stat(store, &st) == 0 && st.st_uid ? st.st_uid : SERVER_UID;
}

static int run_doctor(struct cli *cli, int argc, char **argv)
{
    const char *domain = NULL, *certificate = NULL;
    int64_t uid = 0;
    const struct cli_option table[] = {
        {"data", 0, CLI_TEXT, &cli->data_dir, "DIR", "the server's data directory"},
        {"uid", 0, CLI_COUNT, &uid, "N", "the server's user and group"},
        {"domain", 0, CLI_TEXT, &domain, "DOMAIN", "whose names are looked up"},
        {"tls-cert", 0, CLI_TEXT, &certificate, "FILE", "the server's certificate"},
        {.name = NULL},
    };
    struct doctor_result results[CHECK_COUNT];
    size_t failed = 0, warned = 0;
    struct doctor doctor;
    char **operands;
    int count, rc = cli_args(cli, &cli_doctor_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_doctor_command, "takes no operand");
    doctor = (struct doctor){.data_dir = cli->data_dir,
                             .domain = domain,
                             .certificate = certificate,
                             .server_uid = uid ? (uid_t)uid : server_uid(cli->data_dir),
                             .root = geteuid() == 0};
    for (size_t i = 0; i < CHECK_COUNT; i++) {
        results[i] = (struct doctor_result){.level = DOCTOR_FAIL};
        checks[i].check(&doctor, &results[i]);
        failed += results[i].level == DOCTOR_FAIL;
        warned += results[i].level == DOCTOR_WARN;
    }
    if (cli->json) {
        print_json(results);
    } else {
        print_table(results);
        printf("\n%zu checks: %zu failed, %zu with a warning\n", (size_t)CHECK_COUNT, failed,
               warned);
    }
    return failed ? CLI_FAILED : CLI_OK;
}

const struct cli_command cli_doctor_command = {
    "doctor", "[OPTION...]",
    "Check what this host offers, and say how to get what is missing.\n"
    "The exit status is 1 when something the server needs is missing.",
    run_doctor, .examples = "quicksand doctor"};
