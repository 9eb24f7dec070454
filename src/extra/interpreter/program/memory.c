#include "extra/interpreter/program/memory.h"

#include <fcntl.h>

#include "base/buf.h"
#include "base/fd.h"

enum { FILE_MAX = 16 * 1024 };

/* The number behind a word of a file of "WORD NUMBER" or "WORD: NUMBER kB" lines. */
static uint64_t value_of(const char *file, const char *word)
{
    auto_buf struct buf text = {0};
    struct str rest;
    uint64_t value;

    buf_init(&text, FILE_MAX);
    if (fd_read_file_at(AT_FDCWD, file, &text) < 0)
        return 0;
    rest = buf_str(&text);
    while (rest.p) {
        struct str line = str_split(&rest, '\n');

        if (!str_is(str_split(&line, ' '), word))
            continue;
        line = str_trim(line);
        if (str_to_u64(str_split(&line, ' '), &value))
            return value;
    }
    return 0;
}

uint64_t memory_kills(void)
{
    uint64_t kills = value_of("/sys/fs/cgroup/memory.events", "oom_kill");

    return kills ? kills : value_of("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill");
}

uint64_t memory_limit_bytes(void)
{
    return value_of("/proc/meminfo", "MemTotal:") * 1024;
}
