/* Options of the sanitizers, for envd built with them. The engine starts it with an empty
 * environment, so they cannot come from there. Built only with -Db_sanitize.
 *
 * As process 1 of a sandbox it must not ask for leaks: that wants to trace itself from a second
 * process, and its end by SIGKILL leaves no moment to ask anyway. Memory that was freed is kept for
 * later, but a sandbox has little to give. The first finding ends envd and the sandbox with it,
 * which no test overlooks; the report goes to stderr, which a warden with sanitizers leaves open. */
#include <unistd.h>

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

__attribute__((visibility("default"), no_sanitize("address", "undefined"))) const char *
__asan_default_options(void)
{
    return getpid() == 1 ? "detect_leaks=0:halt_on_error=1:quarantine_size_mb=16" : "";
}

__attribute__((visibility("default"), no_sanitize("address", "undefined"))) const char *
__ubsan_default_options(void)
{
    return getpid() == 1 ? "halt_on_error=1:print_stacktrace=1" : "";
}
