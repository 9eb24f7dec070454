/* The program around unit tests: runs those whose name contains an argument, counts, tells. */
#include "base/test.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_SKIPPED = 77, WHY_SIZE = 200 };

static struct test_case *first, **last = &first;
static char *why; /* a test is skipped: shared with its process */

void test_register(struct test_case *test)
{
    *last = test;
    last = &test->next;
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    (void)fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
    exit(1);
}

void test_error(const char *file, int line, const char *call, int result, const struct error *err,
                enum error_code want, const char *part, ...)
{
    if (result != -1)
        test_fail(file, line, "%s is %d, not -1", call, result);
    if (err->code != want || !strstr(err->message, part))
        test_fail(file, line, "%s: %s: %s", call, error_code_name(err->code), err->message);
}

void test_skip(const char *reason)
{
    (void)snprintf(why, WHY_SIZE, "%s", reason);
    exit(EXIT_SKIPPED);
}

void test_lacks(const char *what)
{
    const char *strict = getenv("QUICKSAND_TEST_STRICT");

    if (!strict || !strict[0])
        test_skip(what);
    (void)fprintf(stderr, "%s; QUICKSAND_TEST_STRICT does not let this be skipped\n", what);
    exit(1);
}

void test_wait(const char *file, int line, const char *cond, unsigned looks)
{
    if (looks >= 5000 * test_patience())
        test_fail(file, line, "waited in vain for %s", cond);
    (void)usleep(2000);
}

unsigned test_patience(void)
{
    const char *text = getenv("QUICKSAND_TEST_PATIENCE");
    uint64_t factor;

    return text && str_to_u64(str_of(text), &factor) && factor >= 1 && factor <= 1000
               ? (unsigned)factor
               : 1;
}

static int run(const struct test_case *test)
{
    int status = 0;
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)alarm(test->timeout_s * test_patience());
        test->fn();
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    if (WIFSIGNALED(status)) {
        (void)fprintf(stderr, "%s: %s\n", test->name,
                      WTERMSIG(status) == SIGALRM ? "timed out" : strsignal(WTERMSIG(status)));
        return 1;
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    unsigned passed = 0, failed = 0, skipped = 0;

    why = mmap(NULL, WHY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (why == MAP_FAILED)
        return 1;
    for (struct test_case *test = first; test; test = test->next) {
        int result;

        if (argc > 1 && !strstr(test->name, argv[1]))
            continue;
        result = run(test);
        if (result == 0)
            passed++;
        else if (result == EXIT_SKIPPED)
            skipped++;
        else
            failed++;
        if (result == EXIT_SKIPPED)
            (void)printf("skip %s: %s\n", test->name, why);
        else
            (void)printf("%s %s\n", result == 0 ? "ok  " : "FAIL", test->name);
    }
    (void)printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed != 0;
}
