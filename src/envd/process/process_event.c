#include "envd/process/process_event.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/encode.h"
#include "protocol/json/json_out.h"
#include "protocol/rpc/connect.h"
#include "protocol/rpc/proto_wire.h"

static const struct str data_heads[] = {
    [PROCESS_STDOUT] = STR_INIT("{\"event\":{\"data\":{\"stdout\":\""),
    [PROCESS_STDERR] = STR_INIT("{\"event\":{\"data\":{\"stderr\":\""),
    [PROCESS_PTY] = STR_INIT("{\"event\":{\"data\":{\"pty\":\""),
};
static const struct str data_tail = STR_INIT("\"}}}");

/* The words that Go programs print, which clients compare with. */
static const char *const signal_words[] = {
    [SIGHUP] = "hangup",
    [SIGINT] = "interrupt",
    [SIGQUIT] = "quit",
    [SIGILL] = "illegal instruction",
    [SIGTRAP] = "trace/breakpoint trap",
    [SIGABRT] = "aborted",
    [SIGBUS] = "bus error",
    [SIGFPE] = "floating point exception",
    [SIGKILL] = "killed",
    [SIGUSR1] = "user defined signal 1",
    [SIGSEGV] = "segmentation fault",
    [SIGUSR2] = "user defined signal 2",
    [SIGPIPE] = "broken pipe",
    [SIGALRM] = "alarm clock",
    [SIGTERM] = "terminated",
};

enum { EVENT_MAX = 512 };

/* Leaves the event's object open. */
static void event_begin(struct buf *text, const char *name)
{
    buf_init(text, EVENT_MAX);
    json_out_open(text, NULL, '{');
    json_out_open(text, "event", '{');
    json_out_open(text, name, '{');
}

/* Our own messages always fit their tables. */
static void event_end(struct buf *text, struct buf *out, const struct proto_message *format)
{
    struct error err;

    json_out_close(text, "}}}");
    (void)connect_add_message(out, format, buf_str(text), &err);
}

void process_event_start(struct buf *out, const struct proto_message *format, pid_t pid)
{
    auto_buf struct buf text = {0};

    event_begin(&text, "start");
    json_out_int(&text, "pid", pid);
    event_end(&text, out, format);
}

/* A response's event (1), its data (2), and the channel's bytes, each behind a tag and a length. */
enum { BINARY_HEAD_MAX = 3 * (1 + PROTO_VARINT_MAX) };

static size_t put_tag(char *out, char tag, size_t len)
{
    out[0] = tag;
    return 1 + proto_wire_put(out + 1, len);
}

static size_t binary_head(char out[BINARY_HEAD_MAX], enum process_channel channel, size_t len)
{
    static const char tags[] = {
        [PROCESS_STDOUT] = 0x0a, [PROCESS_STDERR] = 0x12, [PROCESS_PTY] = 0x1a};
    char scratch[1 + PROTO_VARINT_MAX];
    size_t data = put_tag(scratch, tags[channel], len) + len;
    size_t event = put_tag(scratch, 0x12, data) + data;
    size_t n = put_tag(out, 0x0a, event);

    n += put_tag(out + n, 0x12, data);
    return n + put_tag(out + n, tags[channel], len);
}

static void add_binary_data(struct buf *out, enum process_channel channel, const void *p,
                            size_t len)
{
    char head[BINARY_HEAD_MAX];
    size_t head_len = binary_head(head, channel, len);
    char *to = buf_reserve(out, CONNECT_HEAD_SIZE + head_len + len);

    if (!to)
        return;
    connect_head(to, 0, (uint32_t)(head_len + len));
    memcpy(to + CONNECT_HEAD_SIZE, head, head_len);
    memcpy(to + CONNECT_HEAD_SIZE + head_len, p, len);
    buf_grew(out, CONNECT_HEAD_SIZE + head_len + len);
}

static void add_json_data(struct buf *out, enum process_channel channel, const void *p, size_t len)
{
    struct str head = data_heads[channel];
    size_t message = head.len + BASE64_LEN(len) + data_tail.len;
    char *to = buf_reserve(out, CONNECT_HEAD_SIZE + message);

    if (!to)
        return;
    connect_head(to, 0, (uint32_t)message);
    to += CONNECT_HEAD_SIZE;
    memcpy(to, head.p, head.len);
    base64_encode(to + head.len, p, len);
    memcpy(to + message - data_tail.len, data_tail.p, data_tail.len);
    buf_grew(out, CONNECT_HEAD_SIZE + message);
}

size_t process_event_data_size(bool binary, size_t len)
{
    if (binary)
        return CONNECT_HEAD_SIZE + BINARY_HEAD_MAX + len;
    return CONNECT_HEAD_SIZE + data_heads[PROCESS_STDOUT].len + BASE64_LEN(len) + data_tail.len;
}

void process_event_data(struct buf *out, bool binary, enum process_channel channel, const void *p,
                        size_t len)
{
    if (binary)
        add_binary_data(out, channel, p, len);
    else
        add_json_data(out, channel, p, len);
}

void process_event_keepalive(struct buf *out, const struct proto_message *format)
{
    auto_buf struct buf text = {0};

    event_begin(&text, "keepalive");
    event_end(&text, out, format);
}

static void add_signal(char *text, size_t size, int status)
{
    int number = WTERMSIG(status);
    size_t known = sizeof(signal_words) / sizeof(signal_words[0]);
    const char *core = WCOREDUMP(status) ? " (core dumped)" : "";

    if ((size_t)number < known && signal_words[number])
        (void)snprintf(text, size, "signal: %s%s", signal_words[number], core);
    else
        (void)snprintf(text, size, "signal: signal %d%s", number, core);
}

void process_event_end(struct buf *out, const struct proto_message *format, int status,
                       bool out_of_memory)
{
    auto_buf struct buf text = {0};
    char words[64], why[96];
    bool exited = WIFEXITED(status);
    int code = exited ? WEXITSTATUS(status) : -1;

    if (exited)
        (void)snprintf(words, sizeof(words), "exit status %d", code);
    else
        add_signal(words, sizeof(words), status);
    event_begin(&text, "end");
    json_out_int(&text, "exitCode", code);
    json_out_bool(&text, "exited", exited);
    json_out_str(&text, "status", str_of(words));
    if (code != 0) {
        (void)snprintf(why, sizeof(why), "%s%s", words, out_of_memory ? ": out of memory" : "");
        json_out_str(&text, "error", str_of(why));
    }
    event_end(&text, out, format);
}
