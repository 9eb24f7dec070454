#include "quicksand/config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/test.h"

static int load(struct config *config, struct buf *faults, int argc, const char *const *argv)
{
    buf_init(faults, 10000);
    return config_load(config, argc, (char **)(uintptr_t)argv, faults);
}

TEST(defaults_are_valid)
{
    struct config config;
    struct buf faults;

    CHECK_INT(load(&config, &faults, 0, NULL), 0);
    CHECK_STR(str_of(config.listen), "127.0.0.1:3000");
    CHECK_INT(config.template_mem_mb, 512);
}

TEST(flags_beat_environment_beats_file)
{
    char path[] = "/tmp/qs-config-XXXXXX";
    const char *argv[] = {"--warm", "3", "--config", path};
    struct config config;
    struct buf faults;
    int fd = mkstemp(path);
    static const char text[] = "# comment\nwarm = 1\nworkers = 4\nloops= 2\n";

    CHECK(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    CHECK(setenv("QUICKSAND_WORKERS", "5", 1) == 0);
    CHECK_INT(load(&config, &faults, 4, argv), 0);
    CHECK_INT(config.warm, 3);
    CHECK_INT(config.workers, 5);
    CHECK_INT(config.loops, 2);
    CHECK(unlink(path) == 0);
}

TEST(all_faults_are_reported_at_once)
{
    const char *argv[] = {"--warm", "x", "--workers=0", "--nonsense", "--log=loud", "--data="};
    struct config config;
    struct buf faults;

    CHECK_INT(load(&config, &faults, 6, argv), -1);
    CHECK(strstr(faults.p, "'warm'"));
    CHECK(strstr(faults.p, "'workers'"));
    CHECK(strstr(faults.p, "--nonsense"));
    CHECK(strstr(faults.p, "log must be"));
    CHECK(strstr(faults.p, "data must be a directory"));
    buf_done(&faults);
}

TEST(levels_of_the_log_are_whole_words)
{
    static const char *const good[] = {"--log=debug", "--log=info", "--log=warn", "--log=error"};
    static const char *const bad[] = {"--log=nfo", "--log=info warn", "--log= ", "--log="};
    struct config config;
    struct buf faults;

    for (size_t i = 0; i < 4; i++)
        CHECK_INT(load(&config, &faults, 1, &good[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(load(&config, &faults, 1, &bad[i]), -1);
        CHECK(strstr(faults.p, "log must be"));
        buf_done(&faults);
    }
}

TEST(where_to_listen_is_checked_with_the_rest)
{
    static const char *const good[] = {"--listen=localhost:3000", "--listen=:3000",
                                       "--listen=[::1]:3000", "--listen=0.0.0.0:0"};
    static const char *const bad[] = {"--listen=3000", "--listen=::1:3000", "--listen=box:3000",
                                      "--listen=127.0.0.1:70000"};
    struct config config;
    struct buf faults;

    for (size_t i = 0; i < 4; i++)
        CHECK_INT(load(&config, &faults, 1, &good[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(load(&config, &faults, 1, &bad[i]), -1);
        CHECK(strstr(faults.p, "listen must be"));
        buf_done(&faults);
    }
}

TEST(certificates_come_in_pairs_and_with_a_listener)
{
    static const struct {
        const char *argv[4];
        int count;
        const char *fault; /* NULL = fine */
    } cases[] = {
        {{"--listen-tls=:443", "--tls-cert=a,b", "--tls-key=c", "--tls-key=d"}, 4, NULL},
        {{"--listen-tls=:443", "--redirect-http=1", "--hsts=60"}, 3, NULL},
        {{"--listen-tls=:443", "--tls-cert=a"}, 2, "1 of tls-cert and 0 of tls-key"},
        {{"--listen-tls=443"}, 1, "listen-tls must be"},
        {{"--hsts=60"}, 1, "need listen-tls"},
        {{"--tls-cert=a", "--tls-key=b"}, 2, "need listen-tls"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct config config;
        struct buf faults;

        CHECK_INT(load(&config, &faults, cases[i].count, cases[i].argv), cases[i].fault ? -1 : 0);
        if (cases[i].fault)
            CHECK(strstr(faults.p, cases[i].fault));
        buf_done(&faults);
    }
}
