/* GET /metrics */
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/statfs_mark.h"
#include "envd/core/envd.h"
#include "envd/process/usage.h"
#include "envd/view/disk_use.h"
#include "protocol/json/json_out.h"

enum {
    MIB = 1024 * 1024,
    CPU_INTERVAL_US = 200 * 1000,
};

static struct {
    uint64_t cpu_us;
    int64_t at_us;
    double percent;
} last;

void metrics_init(void)
{
    last.cpu_us = usage_cpu_us(USAGE_ROOT);
    last.at_us = clock_mono_us();
}

/* Share of all processors since the previous question, or since the start. Questions in quick
 * succession get the same answer: over so short a time the number would mean nothing. */
static double cpu_percent(uint64_t cpu_us, unsigned cpus)
{
    int64_t now = clock_mono_us(), elapsed = now - last.at_us;

    if (elapsed < CPU_INTERVAL_US)
        return last.percent;
    last.percent = cpu_us > last.cpu_us
                       ? 100.0 * (double)(cpu_us - last.cpu_us) / ((double)elapsed * cpus)
                       : 0;
    if (last.percent > 100)
        last.percent = 100;
    last.cpu_us = cpu_us;
    last.at_us = now;
    return last.percent;
}

/* Without a limit of its own, what the file system says. */
static void read_disk(struct disk_use *out)
{
    struct statfs fs = {0};
    uint64_t block;

    (void)syscall(SYS_statfs, "/", &fs, 0, 0, 0, STATFS_MARK);
    block = (uint64_t)fs.f_bsize;
    if (!disk_use_read(fs.f_bavail * block, out))
        *out = (struct disk_use){.size = fs.f_blocks * block,
                                 .used = (fs.f_blocks - fs.f_bfree) * block};
}

void metrics_handle(struct envd *envd, struct http_exchange *ex)
{
    unsigned cpus = usage_cpu_count(USAGE_ROOT);
    struct disk_use disk;
    struct usage usage;
    auto_buf struct buf text = {0};
    char percent[16];
    uint64_t used;

    usage_read(USAGE_ROOT, envd->mem_bytes, &usage);
    /* Without what the kernel would give back, as free(1) counts. */
    used = usage.mem_used > usage.mem_cache ? usage.mem_used - usage.mem_cache : 0;
    read_disk(&disk);
    buf_init(&text, 1024);
    (void)snprintf(percent, sizeof(percent), "%.2f", cpu_percent(usage.cpu_us, cpus));
    json_out_open(&text, NULL, '{');
    json_out_int(&text, "ts", clock_wall_us() / 1000000);
    json_out_uint(&text, "cpu_count", cpus);
    json_out_raw(&text, "cpu_used_pct", str_of(percent));
    json_out_uint(&text, "mem_total", usage.mem_total);
    json_out_uint(&text, "mem_used", used);
    json_out_uint(&text, "mem_cache", usage.mem_cache);
    json_out_uint(&text, "mem_total_mib", usage.mem_total / MIB);
    json_out_uint(&text, "mem_used_mib", used / MIB);
    json_out_uint(&text, "disk_used", disk.used);
    json_out_uint(&text, "disk_total", disk.size);
    json_out_close(&text, "}");
    envd_reply_json(ex, 200, buf_str(&text));
}
