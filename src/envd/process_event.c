#include "envd/process_event.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/encode.h"
#include "rpc/connect.h"

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

void process_event_start(struct buf *out, pid_t pid)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "{\"event\":{\"start\":{\"pid\":%d}}}", (int)pid);

    connect_add(out, 0, str_n(text, (size_t)len));
}

size_t process_event_data_size(size_t len)
{
    return CONNECT_HEAD_SIZE + data_heads[PROCESS_STDOUT].len + BASE64_LEN(len) + data_tail.len;
}

void process_event_data(struct buf *out, enum process_channel channel, const void *p, size_t len)
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

void process_event_keepalive(struct buf *out)
{
    connect_add(out, 0, STR("{\"event\":{\"keepalive\":{}}}"));
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

void process_event_end(struct buf *out, int status)
{
    char words[64], text[256];
    bool exited = WIFEXITED(status);
    int code = exited ? WEXITSTATUS(status) : -1, len;

    if (exited)
        (void)snprintf(words, sizeof(words), "exit status %d", code);
    else
        add_signal(words, sizeof(words), status);
    len = snprintf(text, sizeof(text),
                   "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":%s,\"status\":\"%s\"", code,
                   exited ? "true" : "false", words);
    if (code != 0)
        len += snprintf(text + len, sizeof(text) - (size_t)len, ",\"error\":\"%s\"", words);
    len += snprintf(text + len, sizeof(text) - (size_t)len, "}}}");
    connect_add(out, 0, str_n(text, (size_t)len));
}
