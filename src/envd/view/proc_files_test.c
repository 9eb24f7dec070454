#include "envd/view/proc_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/test.h"
#include "envd/view/proc_text.h"

struct message {
    struct fuse_in_header head;
    union {
        struct fuse_read_in read;
    } body;
};

struct answer {
    struct fuse_out_header head;
    char body[PROC_FILES_REPLY_MAX - sizeof(struct fuse_out_header)];
};

static size_t ask(uint32_t opcode, struct message *message, size_t body_len, struct answer *out)
{
    struct message plain = {0};

    if (!message)
        message = &plain;
    message->head.opcode = opcode;
    message->head.unique = 77;
    message->head.nodeid = 3;
    message->head.len = (uint32_t)(sizeof(message->head) + body_len);
    return proc_files_answer(message, message->head.len, STR("0123456789"), (char *)out);
}

TEST(proc_files_attributes_and_open)
{
    struct answer answer;
    struct fuse_attr_out attr;
    struct fuse_open_out opened;

    CHECK_INT(ask(FUSE_GETATTR, NULL, 0, &answer), sizeof(answer.head) + sizeof(attr));
    memcpy(&attr, answer.body, sizeof(attr));
    CHECK_INT(attr.attr.mode, S_IFREG | 0444);
    CHECK_INT(attr.attr.ino, 3);
    CHECK_INT(ask(FUSE_OPEN, NULL, 0, &answer), sizeof(answer.head) + sizeof(opened));
    memcpy(&opened, answer.body, sizeof(opened));
    CHECK(opened.open_flags & FOPEN_DIRECT_IO);
}

static void check_read(uint64_t offset, uint32_t size, const char *want)
{
    struct message message = {.body.read = {.offset = offset, .size = size}};
    struct answer answer;
    size_t len = ask(FUSE_READ, &message, sizeof(message.body.read), &answer);

    CHECK_INT(answer.head.len, len);
    CHECK_STR(str_n(answer.body, len - sizeof(answer.head)), want);
}

TEST(proc_files_read)
{
    struct message message = {0};
    struct answer answer;

    check_read(0, 4096, "0123456789");
    check_read(4, 3, "456");
    check_read(10, 4096, "");
    check_read(UINT64_MAX, UINT32_MAX, "");
    CHECK_INT(ask(FUSE_READ, &message, 8, &answer), sizeof(answer.head));
    CHECK_INT(answer.head.error, -EINVAL);
}

TEST(proc_files_other_requests)
{
    struct answer answer;
    struct message message = {0};

    CHECK_INT(ask(FUSE_FORGET, NULL, 0, &answer), 0);
    CHECK_INT(ask(FUSE_INTERRUPT, NULL, 0, &answer), 0);
    CHECK_INT(ask(FUSE_RELEASE, NULL, 0, &answer), sizeof(answer.head));
    CHECK_INT(answer.head.error, 0);
    CHECK_INT(ask(FUSE_WRITE, NULL, 0, &answer), sizeof(answer.head));
    CHECK_INT(answer.head.error, -ENOSYS);
    /* A length that does not fit, and too little for a head. */
    message.head.len = 1000;
    CHECK_INT(proc_files_answer(&message, sizeof(message), STR(""), (char *)&answer), 0);
    CHECK_INT(proc_files_answer(&message, 10, STR(""), (char *)&answer), 0);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    CHECK(file);
    CHECK(fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST(usage_of_both_hierarchies)
{
    char v2[] = "/tmp/usage-test-XXXXXX", v1[] = "/tmp/usage-test-XXXXXX", sub[64];
    struct usage usage;
    unsigned machine;

    CHECK(mkdtemp(v2) && mkdtemp(v1));
    write_file(v2, "memory.current", "3000000\n");
    write_file(v2, "memory.max", "8388608\n");
    write_file(v2, "memory.stat", "anon 1000\nfile 2000000\nshmem 5\nactive_file 7\n");
    write_file(v2, "cpu.stat", "usage_usec 1234\n");
    usage_read(v2, 0, &usage);
    CHECK_INT(usage.mem_total, 8388608);
    CHECK_INT(usage.mem_used, 3000000);
    CHECK_INT(usage.mem_cache, 2000000);
    CHECK_INT(usage.mem_active_file, 7);
    CHECK_INT(usage.cpu_us, 1234);
    write_file(v2, "memory.max", "max\n");
    usage_read(v2, 4194304, &usage);
    CHECK_INT(usage.mem_total, 4194304);

    (void)snprintf(sub, sizeof(sub), "%s/memory", v1);
    CHECK_INT(mkdir(sub, 0700), 0);
    write_file(sub, "memory.limit_in_bytes", "9223372036854771712\n");
    write_file(sub, "memory.usage_in_bytes", "5000\n");
    write_file(sub, "memory.stat", "cache 1\ntotal_cache 2000\n");
    usage_read(v1, 65536, &usage);
    CHECK_INT(usage.mem_total, 65536);
    CHECK_INT(usage.mem_used, 5000);
    CHECK_INT(usage.mem_cache, 2000);
    CHECK_INT(usage.cpu_us, 0);
    (void)snprintf(sub, sizeof(sub), "%s/cpu", v1);
    CHECK_INT(mkdir(sub, 0700), 0);
    write_file(sub, "cpuacct.usage", "7000\n");
    write_file(sub, "cpu.cfs_quota_us", "-1\n");
    write_file(sub, "cpu.cfs_period_us", "100000\n");
    CHECK_INT(usage_cpu_us(v1), 7);
    machine = usage_cpu_count(v1);
    CHECK(machine >= 1);
    write_file(sub, "cpu.cfs_quota_us", "50000\n");
    CHECK_INT(usage_cpu_count(v1), 1);
    (void)snprintf(sub, sizeof(sub), "%s/unified", v1);
    CHECK_INT(mkdir(sub, 0700), 0);
    write_file(sub, "cpu.stat", "usage_usec 99\nuser_usec 1\n");
    CHECK_INT(usage_cpu_us(v1), 99);
    CHECK_INT(usage_cpu_times(v1).user_us, 1);
    CHECK_INT(usage_cpu_times(v2).user_us, 1234);
    write_file(v2, "cpu.max", "max 100000\n");
    CHECK_INT(usage_cpu_count(v2), machine);
    write_file(v2, "cpu.max", "100000 100000\n");
    CHECK_INT(usage_cpu_count(v2), 1);
    CHECK_INT(path_remove_tree(AT_FDCWD, v1), 0);
    CHECK_INT(path_remove_tree(AT_FDCWD, v2), 0);
}

TEST(meminfo_text_has_what_free_reads)
{
    struct usage usage = {.mem_total = 1024 * 1024, .mem_used = 512 * 1024, .mem_cache = 4096};
    auto_buf struct buf text = {0};

    buf_init(&text, 8192);
    proc_text_write_meminfo(&usage, &text);
    CHECK(strstr(text.p, "MemTotal:           1024 kB\n"));
    CHECK(strstr(text.p, "MemFree:             512 kB\n"));
    CHECK(strstr(text.p, "Cached:                4 kB\n"));
    CHECK(strstr(text.p, "SwapTotal:             0 kB\n"));
}

TEST(stat_has_what_programs_read)
{
    char root[] = "/tmp/stat-test-XXXXXX", *line;
    unsigned long long user, kernel, idle, again;
    auto_buf struct buf text = {0};
    struct proc_text state;
    char threads[64];
    size_t lines = 0;

    CHECK(mkdtemp(root));
    write_file(root, "cpu.stat", "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\n");
    (void)snprintf(threads, sizeof(threads), "%d\n%d\n", (int)getpid(), (int)getppid());
    write_file(root, "cgroup.threads", threads);
    buf_init(&text, 1 << 20);
    proc_text_init(&state, root, 0);
    proc_text_stat(&state, &text);
    CHECK(sscanf(text.p, "cpu  %llu 0 %llu %llu 0 0 0 0 0 0\n", &user, &kernel, &idle) == 3);
    CHECK_INT(user, 300);
    CHECK_INT(kernel, 200);
    for (line = text.p; (line = strstr(line, "\ncpu")); line++)
        lines++;
    CHECK_INT(lines, CPU_COUNT(&state.cpus));
    CHECK(strstr(text.p, "\nbtime ") && strstr(text.p, "\nprocs_running "));
    /* Idle time does not go back when more was used than passed. */
    write_file(root, "cpu.stat", "user_usec 3000000\nsystem_usec 9000000000000000\n");
    buf_clear(&text);
    proc_text_stat(&state, &text);
    CHECK(sscanf(text.p, "cpu  %llu 0 %llu %llu ", &user, &kernel, &again) == 3);
    CHECK_INT(again, idle);
    buf_clear(&text);
    proc_text_loadavg(&state, &text);
    CHECK(strstr(text.p, "/2 "));
    CHECK_INT(path_remove_tree(AT_FDCWD, root), 0);
}

TEST(load_is_what_ran_since_the_last_read)
{
    enum { SECOND = 1000000 };
    struct proc_load load = {.at_us = 10 * (uint64_t)SECOND};

    /* Half of a processor for a minute. */
    proc_load_update(&load, 70 * (uint64_t)SECOND, 30 * (uint64_t)SECOND, 9);
    CHECK(load.average[0] > 0.31 && load.average[0] < 0.32);
    CHECK(load.average[1] > 0.09 && load.average[1] < 0.10);
    CHECK(load.average[2] > 0.03 && load.average[2] < 0.04);
    /* Too soon. */
    proc_load_update(&load, 70 * (uint64_t)SECOND + 1000, 31 * (uint64_t)SECOND, 9);
    CHECK_INT(load.at_us, 70 * (uint64_t)SECOND);
    /* Soon enough for what waits to count. */
    proc_load_update(&load, 75 * (uint64_t)SECOND, 35 * (uint64_t)SECOND, 9);
    CHECK(load.average[0] > 1.0 && load.average[0] < 1.1);
    /* An idle year. */
    proc_load_update(&load, UINT64_C(31536000) * SECOND, 35 * (uint64_t)SECOND, 0);
    CHECK(load.average[2] < 0.01);
    CHECK_INT(load.at_us, UINT64_C(31536000) * SECOND);
}
