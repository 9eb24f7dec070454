#include "quicksand/server_monitor.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "domain/sandbox/sandbox.h"
#include "protocol/http/http_budget.h"
#include "quicksand/runtime_service.h"

struct series {
    struct buf *out;
    const char *metric, *label, *rest; /* metric{label="NAME"rest} */
};

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    (void)buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Users choose the names of templates. */
static void add_label(struct buf *out, struct str value)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = value.p[i];

        if (c == '"' || c == '\\')
            (void)buf_add_char(out, '\\');
        (void)buf_add_char(out, (unsigned char)c < 0x20 ? '?' : c);
    }
}

static void add_one(void *arg, struct str name, uint64_t count)
{
    const struct series *series = arg;

    (void)buf_printf(series->out, "%s{%s=\"", series->metric, series->label);
    add_label(series->out, name);
    (void)buf_printf(series->out, "\"%s} %" PRIu64 "\n", series->rest, count);
}

static void write_teams(struct sandboxes *all, struct buf *out)
{
    struct series running = {out, "quicksand_team_sandboxes", "team", ",state=\"running\""};
    struct series paused = {out, "quicksand_team_sandboxes", "team", ",state=\"paused\""};
    struct series teams = {out, "quicksand_team_creates_total", "team", ""};
    struct series templates = {out, "quicksand_template_creates_total", "template", ""};

    head(out, running.metric, "gauge", "Sandboxes of a team.");
    sandboxes_teams_each(all, false, add_one, &running);
    sandboxes_teams_each(all, true, add_one, &paused);
    head(out, teams.metric, "counter", "Sandboxes that a team created.");
    sandboxes_creates_each(all, false, add_one, &teams);
    head(out, templates.metric, "counter", "Sandboxes that were created of a template.");
    sandboxes_creates_each(all, true, add_one, &templates);
}

static size_t count_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;

    if (!dir)
        return 0;
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count > 3 ? count - 3 : 0; /* two names of directories, and this one */
}

static uint64_t resident_bytes(void)
{
    auto_buf struct buf text = {0};
    struct str rest;
    uint64_t pages = 0;

    buf_init(&text, 256);
    if (fd_read_file_at(AT_FDCWD, "/proc/self/statm", &text) < 0)
        return 0;
    rest = buf_str(&text);
    (void)str_split(&rest, ' ');
    (void)str_to_u64(str_split(&rest, ' '), &pages);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Names that every client library of Prometheus has. */
static void write_process(const struct monitor_targets *targets, struct buf *out)
{
    struct rusage use = {0};
    struct rlimit files = {0};

    (void)getrusage(RUSAGE_SELF, &use);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    head(out, "process_cpu_seconds_total", "counter", "Processor time of the server process.");
    (void)buf_printf(out, "process_cpu_seconds_total %.2f\n",
                     (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                         (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
    head(out, "process_resident_memory_bytes", "gauge", "Memory of the server process.");
    (void)buf_printf(out, "process_resident_memory_bytes %" PRIu64 "\n", resident_bytes());
    head(out, "process_open_fds", "gauge", "Descriptors that it has open.");
    (void)buf_printf(out, "process_open_fds %zu\n", count_files());
    head(out, "process_max_fds", "gauge", "How many it may have.");
    (void)buf_printf(out, "process_max_fds %" PRIu64 "\n", (uint64_t)files.rlim_cur);
    head(out, "process_start_time_seconds", "gauge", "When it was started, since the epoch.");
    (void)buf_printf(out, "process_start_time_seconds %.3f\n", (double)targets->started_us / 1e6);
}

static void write_responses(const struct http_budget *budget, struct buf *out)
{
    head(out, "quicksand_unread_response_bytes", "gauge",
         "Memory of responses that clients have not read yet.");
    (void)buf_printf(out, "quicksand_unread_response_bytes %zu\n", http_budget_held(budget));
    head(out, "quicksand_unread_responses_ended_total", "counter",
         "Responses that were ended because nobody read them and others needed the memory.");
    (void)buf_printf(out, "quicksand_unread_responses_ended_total %" PRIu64 "\n",
                     http_budget_ended(budget));
}

void server_monitor(void *arg, struct buf *out)
{
    const struct monitor_targets *targets = arg;

    head(out, "quicksand_build_info", "gauge", "1, with the version of the program.");
    (void)buf_printf(out, "quicksand_build_info{version=\"" QUICKSAND_VERSION "\"} 1\n");
    write_process(targets, out);
    write_teams(targets->sandboxes, out);
    write_responses(targets->budget, out);
    if (targets->runtime)
        runtime_service_monitor(targets->runtime, out);
}
