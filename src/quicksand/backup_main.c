/* `quicksand backup`, `restore` and `upgrade`: what an operator does with a data directory as a whole. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backup/backup.h"
#include "base/clock.h"
#include "base/size.h"
#include "cli/core/cli.h"
#include "quicksand/serve.h"
#include "store/core/store_export.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

static bool stopped(void)
{
    return interrupted != 0;
}

static int fail(const struct error *err)
{
    (void)fprintf(stderr, "quicksand: %s\n", err->message);
    return 1;
}

static int load(struct config *config, const char *command, int argc, char **argv)
{
    auto_buf struct buf faults = {0};

    buf_init(&faults, 16384);
    if (config_load(config, argc, argv, &faults) == 0)
        return 0;
    (void)fprintf(stderr, "%ssee 'quicksand %s --help'\n", faults.p ? faults.p : "", command);
    return 2;
}

static int tell(const char *verb, const char *path, const struct backup_result *result,
                int64_t began_us)
{
    char size[SIZE_TEXT];

    (void)printf("%s '%s': %zu layers, %zu volumes, %zu sandboxes; %" PRIu64 " files, %s in "
                 "%.1f s\n",
                 verb, path, result->layers, result->volumes, result->sandboxes, result->entries,
                 size_text(result->bytes, size), (double)(clock_mono_us() - began_us) / 1e6);
    return 0;
}

/* argv: FILE and options. */
static int keep_or_restore(const char *command, const struct config *config, const char *path)
{
    bool restore = strcmp(command, "restore") == 0;
    const struct backup_config backup = {.data_dir = config->data,
                                         .path = path,
                                         .server_uid = (uid_t)config->server_uid,
                                         .stopped = stopped};
    struct backup_result result;
    int64_t began_us = clock_mono_us();
    struct error err;

    if (geteuid() != 0) {
        (void)fprintf(stderr, "quicksand: %s needs root; try: sudo quicksand %s %s\n", command,
                      command, path);
        return 1;
    }
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    if ((restore ? backup_restore(&backup, &result, &err) : backup_make(&backup, &result, &err)) <
        0)
        return fail(&err);
    return tell(restore ? "restored" : "wrote", path, &result, began_us);
}

static int upgrade_check(const struct config *config)
{
    char path[CONFIG_TEXT_SIZE + 32];
    int64_t version = 0, known = store_schema_known();
    struct error err;

    (void)snprintf(path, sizeof(path), "%s/store/quicksand.db", config->data);
    if (backup_check_restored(config->data, &err) < 0)
        return fail(&err);
    if (store_schema(path, &version, &err) < 0) {
        if (err.errnum != ENOENT)
            return fail(&err);
        (void)printf("'%s' has no data yet: the first start makes it\n", config->data);
        return 0;
    }
    if (version > known) {
        (void)fprintf(stderr,
                      "quicksand: '%s' was written by a newer program: its store has schema "
                      "version %" PRId64 ", this program (" QUICKSAND_VERSION
                      ") knows only up to %" PRId64
                      ". Install the newer program again, or restore a backup made before it was "
                      "upgraded\n",
                      config->data, version, known);
        return 1;
    }
    if (version == known)
        (void)printf("'%s' is of this program (" QUICKSAND_VERSION "): schema version %" PRId64
                     ", nothing to change\n",
                     config->data, version);
    else
        (void)printf("'%s' has schema version %" PRId64 "; the next start makes it %" PRId64
                     ". An older program cannot read it then: make a backup first\n",
                     config->data, version, known);
    return 0;
}

int keep_main(const char *command, int argc, char **argv)
{
    static struct config config;
    bool upgrade = strcmp(command, "upgrade") == 0;
    int r;

    if (argc < 1 || (upgrade ? strcmp(argv[0], "--check") != 0 : argv[0][0] == '-')) {
        (void)fprintf(stderr, "quicksand %s: needs %s; see 'quicksand %s --help'\n", command,
                      upgrade ? "--check" : "a FILE first", command);
        return 2;
    }
    r = load(&config, command, argc - 1, argv + 1);
    if (r != 0)
        return r;
    return upgrade ? upgrade_check(&config) : keep_or_restore(command, &config, argv[0]);
}
