/* The processors a box runs on, as its programs are told of them. Called between clone and exec: no memory is
 * allocated. */
#include "host/native/box.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"

bool box_cpus_all(const struct box_child *child)
{
    return child->cpu_count >= child->host_cpus;
}

bool box_cpus_has(const struct box_child *child, uint64_t cpu)
{
    uint64_t host = (uint64_t)child->host_cpus;

    return cpu < host && (cpu + host - child->cpu_first % host) % host < child->cpu_count;
}

int box_cpus_write_list(const struct box_child *child, int fd)
{
    const char *comma = "";

    for (uint64_t cpu = 0; cpu < (uint64_t)child->host_cpus; cpu++) {
        char text[32];
        int len, r;

        if (!box_cpus_has(child, cpu))
            continue;
        len = snprintf(text, sizeof(text), "%s%llu", comma, (unsigned long long)cpu);
        r = fd_write_full(fd, text, (size_t)len);
        if (r < 0)
            return r;
        comma = ",";
    }
    return fd_write_full(fd, "\n", 1);
}

/* "processor\t: 3" */
static bool read_number(struct str line, uint64_t *out)
{
    struct str name = str_split(&line, ':');

    return str_is(str_trim(name), "processor") && line.p && str_to_u64(str_trim(line), out);
}

/* What comes before the first processor is about the machine as a whole. */
int box_cpus_write_info(const struct box_child *child, int fd)
{
    struct str rest = str_of(child->cpuinfo);
    const char *from = rest.p; /* of what is wanted and not written yet, or NULL */
    int r = 0;

    while (r == 0 && rest.len > 0) {
        const char *at = rest.p;
        struct str line = str_split(&rest, '\n');
        uint64_t cpu;

        if (!read_number(line, &cpu))
            continue;
        if (from && !box_cpus_has(child, cpu)) {
            r = fd_write_full(fd, from, (size_t)(at - from));
            from = NULL;
        } else if (!from && box_cpus_has(child, cpu)) {
            from = at;
        }
    }
    return r == 0 && from ? fd_write_full(fd, from, strlen(from)) : r;
}
