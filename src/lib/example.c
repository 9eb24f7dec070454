/* A sandbox by key on whatever provider the configuration names:
 *
 *   cc example.c $(pkg-config --cflags --libs quicksand) -o example
 *   ./example '{"providers":{"local":{"type":"process","envd":"/usr/local/lib/quicksand/envd",
 *                                     "root":"/tmp/boxes"}},"default_provider":"local"}'
 *   E2B_API_URL=http://127.0.0.1:3000 E2B_API_KEY=e2b_... ./example */
#include <quicksand.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s (%s)\n", what, qs_error(), qs_error_code());
    return 1;
}

static void show(void *arg, enum qs_stream stream, const char *data, size_t len)
{
    (void)arg;
    (void)fwrite(data, 1, len, stream == QS_STDOUT ? stdout : stderr);
}

static int work(struct qs *qs, const char *id)
{
    const char *const argv[] = {"sh", "-c", "cat greeting; echo from $WHO; exit 3", NULL};
    const char *const env[] = {"WHO=the sandbox", NULL};
    char snapshot[QS_ID_SIZE], copy[QS_ID_SIZE], *text = NULL;
    struct qs_result result;

    if (qs_put(qs, id, "greeting", "hello\n", 6) < 0)
        return failed("put");
    if (qs_get(qs, id, "greeting", 1024, &text, NULL) < 0)
        return failed("get");
    printf("read back: %s", text);
    qs_free(text);
    if (qs_exec(qs, id, &(struct qs_command){.argv = argv, .env = env, .on_output = show},
                &result) < 0)
        return failed("exec");
    printf("exit code %d\n", result.exit_code);
    qs_result_free(&result);
    if (qs_snapshot(qs, id, NULL, snapshot) < 0) {
        printf("no snapshots here: %s\n", qs_error_code());
        return strcmp(qs_error_code(), "unsupported") == 0 ? 0 : failed("snapshot");
    }
    if (qs_restore(qs, snapshot, NULL, copy) < 0)
        return failed("restore");
    if (qs_exec(qs, copy, &(struct qs_command){.line = "cat greeting"}, &result) < 0)
        return failed("exec in the copy");
    printf("the copy has: %s", result.out);
    qs_result_free(&result);
    if (qs_kill(qs, copy) < 0 || qs_snapshot_remove(qs, snapshot) < 0)
        return failed("remove");
    return 0;
}

int main(int argc, char **argv)
{
    char id[QS_ID_SIZE], again[QS_ID_SIZE];
    enum qs_tier tier;
    struct qs *qs;
    int status;

    if (qs_open(argc > 1 ? argv[1] : NULL, ":memory:", &qs) < 0)
        return failed("open");
    if (qs_ensure(qs, "example", NULL, id, &tier) < 0)
        status = failed("ensure");
    else if ((status = work(qs, id)) == 0) {
        if (qs_ensure(qs, "example", NULL, again, &tier) < 0 || qs_kill(qs, id) < 0)
            status = failed("ensure again");
        else
            printf("the same sandbox: %s, resumed: %s\n", strcmp(id, again) == 0 ? "yes" : "no",
                   tier == QS_RESUMED ? "yes" : "no");
    }
    qs_close(qs);
    return status;
}
