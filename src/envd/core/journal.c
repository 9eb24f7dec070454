#include "envd/core/journal.h"

#include <ctype.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

enum {
    LINES_MAX = 1000,
    BYTES_MAX = 128 * 1024,
    COMMAND_MAX = 256, /* of one command line that is told */
    SCAN_MAX = 4096,   /* that is looked at for it */
    ENTRY_MAX = 4096,
};

static struct {
    char *lines[LINES_MAX]; /* a ring */
    size_t first, count, bytes;
} journal;

static void drop_oldest(void)
{
    char **line = &journal.lines[journal.first];

    journal.bytes -= strlen(*line);
    free(take_ptr(line));
    journal.first = (journal.first + 1) % LINES_MAX;
    journal.count--;
}

static void add(enum journal_level level, const char *type, struct str message, const char *detail)
{
    auto_buf struct buf line = {0};

    buf_init(&line, ENTRY_MAX);
    json_out_open(&line, NULL, '{');
    json_out_int(&line, "at", clock_wall_us());
    json_out_int(&line, "level", level);
    json_out_str(&line, "type", str_of(type));
    json_out_str(&line, "message", message);
    json_out_str(&line, "detail", str_of(detail));
    json_out_close(&line, "}");
    if (line.overflowed)
        return;
    while (journal.count == LINES_MAX || (journal.count && journal.bytes + line.len > BYTES_MAX))
        drop_oldest();
    journal.bytes += line.len;
    journal.lines[(journal.first + journal.count++) % LINES_MAX] = buf_take(&line);
}

void journal_envd(enum journal_level level, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    add(level, "envd", str_of(text), "");
}

/* ---- command lines ---- */

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

static bool ends_word(char c)
{
    return isspace((unsigned char)c) || strchr(";|&()<>", c);
}

/* Behind a value: quotes count as part of it. */
static size_t skip_value(struct str text, size_t at)
{
    char quote = '\0';

    for (; at < text.len && (quote || !ends_word(text.p[at])); at++) {
        if (quote)
            quote = text.p[at] == quote ? '\0' : quote;
        else if (text.p[at] == '"' || text.p[at] == '\'')
            quote = text.p[at];
    }
    return at;
}

static bool sounds_secret(struct str word)
{
    static const char *const parts[] = {"token",  "secret", "pass",   "pwd",      "key",
                                        "bearer", "cred",   "cookie", "signature"};
    char lower[64];
    size_t len = word.len < sizeof(lower) - 1 ? word.len : sizeof(lower) - 1;

    str_lower(str_n(word.p, len), lower);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (str_find_str(str_n(lower, len), str_of(parts[i])) >= 0)
            return true;
    return false;
}

static bool is_variable(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (islower((unsigned char)name.p[i]) || name.p[i] == '-')
            return false;
    return true;
}

/* Letters and digits, mixed, for longer than a word. */
static bool looks_secret(struct str value)
{
    enum { RUN = 16 };
    size_t letters = 0, digits = 0;

    for (size_t i = 0; i < value.len; i++) {
        if (!is_name(value.p[i])) {
            letters = digits = 0;
            continue;
        }
        letters += isalpha((unsigned char)value.p[i]) != 0;
        digits += isdigit((unsigned char)value.p[i]) != 0;
        if (letters && digits && letters + digits >= RUN)
            return true;
    }
    return false;
}

/* From the name at `from` on: what is to be told of it and its value. Returns where to go on. */
static size_t tell_word(struct str text, size_t from, struct buf *out)
{
    size_t end = from, value;
    struct str name;

    while (end < text.len && is_name(text.p[end]))
        end++;
    name = str_n(text.p + from, end - from);
    (void)buf_add_str(out, name);
    /* Values of environment variables are nobody's business; those of others may be. */
    if (end < text.len && text.p[end] == '=') {
        value = skip_value(text, end + 1);
        if (is_variable(name) || sounds_secret(name) ||
            looks_secret(str_n(text.p + end + 1, value - end - 1))) {
            (void)buf_add_str(out, STR("=***"));
            return value;
        }
        (void)buf_add_char(out, '=');
        return end + 1;
    }
    value = end;
    while (value < text.len && (text.p[value] == ' ' || text.p[value] == ':'))
        value++;
    if (value > end && value < text.len && sounds_secret(name)) {
        (void)buf_add_str(out, STR(" ***"));
        return skip_value(text, value);
    }
    return end;
}

/* "://user:password@": 0 when it is not there. */
static size_t skip_login(struct str text, size_t at)
{
    if (text.len - at < 4 || memcmp(text.p + at, "://", 3) != 0)
        return 0;
    for (size_t i = at + 3; i < text.len && text.p[i] != '/' && !ends_word(text.p[i]); i++)
        if (text.p[i] == '@')
            return i;
    return 0;
}

static void tell(struct str text, struct buf *out)
{
    size_t end = out->len + COMMAND_MAX;

    for (size_t at = 0; at < text.len;) {
        size_t login = skip_login(text, at);

        if (login) {
            (void)buf_add_str(out, STR("://***"));
            at = login;
        } else if (is_name(text.p[at])) {
            at = tell_word(text, at, out);
        } else {
            (void)buf_add_char(out, text.p[at] == '\n' ? ' ' : text.p[at]);
            at++;
        }
        if (out->len > end) {
            out->len = end;
            (void)buf_add_str(out, STR("..."));
            return;
        }
    }
}

void journal_command(const json_t *config, struct buf *out)
{
    const json_t *args = json_object_get(config, "args"), *arg;
    auto_buf struct buf text = {0};
    size_t i;

    buf_init(&text, SCAN_MAX);
    (void)buf_add_str(&text, json_get_str(config, "cmd"));
    json_array_foreach (args, i, arg) {
        struct str word = str_n(json_string_value(arg), json_string_length(arg));

        if (word.len > SCAN_MAX - 2 - text.len)
            word.len = SCAN_MAX - 2 - text.len;
        (void)buf_add_char(&text, ' ');
        (void)buf_add_str(&text, word);
        if (text.len >= SCAN_MAX - 2)
            break;
    }
    tell(buf_str(&text), out);
}

void journal_started(const json_t *config, const char *user, pid_t pid)
{
    auto_buf struct buf text = {0};
    char detail[32];

    buf_init(&text, 2 * SCAN_MAX);
    (void)buf_printf(&text, "Command started by %s: ", user);
    journal_command(config, &text);
    (void)snprintf(detail, sizeof(detail), "pid %d", (int)pid);
    add(JOURNAL_INFO, "exec", buf_str(&text), detail);
}

void journal_not_started(const json_t *config, const struct error *why)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 2 * SCAN_MAX);
    (void)buf_add_str(&text, STR("Command could not be started: "));
    journal_command(config, &text);
    (void)buf_printf(&text, " (%s)", error_code_name(why->code));
    add(JOURNAL_WARN, "exec", buf_str(&text), "");
}

void journal_ended(const json_t *config, pid_t pid, int status, bool out_of_memory)
{
    auto_buf struct buf text = {0};
    char detail[32];

    buf_init(&text, 2 * SCAN_MAX);
    if (WIFEXITED(status))
        (void)buf_printf(&text, "Command exited with code %d%s: ", WEXITSTATUS(status),
                         out_of_memory ? " (out of memory)" : "");
    else
        (void)buf_printf(&text, "Command ended by signal %d%s: ", WTERMSIG(status),
                         out_of_memory ? " (out of memory)" : "");
    journal_command(config, &text);
    (void)snprintf(detail, sizeof(detail), "pid %d", (int)pid);
    add(WIFEXITED(status) && !out_of_memory ? JOURNAL_INFO : JOURNAL_WARN, "exec", buf_str(&text),
        detail);
}

void journal_handle(struct envd *envd, struct http_exchange *ex)
{
    auto_buf struct buf text = {0};

    (void)envd;
    buf_init(&text, BYTES_MAX + LINES_MAX + 16);
    json_out_open(&text, NULL, '[');
    for (size_t i = 0; i < journal.count; i++)
        json_out_raw(&text, NULL, str_of(journal.lines[(journal.first + i) % LINES_MAX]));
    json_out_close(&text, "]");
    envd_reply_json(ex, 200, buf_str(&text));
}
