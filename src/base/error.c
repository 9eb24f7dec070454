#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CONTEXT_SIZE = 1024, /* of one formatted text; the rest is dropped */
    MESSAGE_TAIL = 200,  /* bytes of a long message that stay at its end, where the cause is */
};

static const char *const code_names[] = {
    [ERROR_NONE] = "none",
    [ERROR_INVALID] = "invalid",
    [ERROR_UNAUTHORIZED] = "unauthorized",
    [ERROR_FORBIDDEN] = "forbidden",
    [ERROR_NOT_FOUND] = "not_found",
    [ERROR_CONFLICT] = "conflict",
    [ERROR_EXISTS] = "exists",
    [ERROR_LIMIT] = "limit",
    [ERROR_QUOTA] = "quota",
    [ERROR_NO_SPACE] = "no_space",
    [ERROR_TIMEOUT] = "timeout",
    [ERROR_UNAVAILABLE] = "unavailable",
    [ERROR_UNSUPPORTED] = "unsupported",
    [ERROR_INTERNAL] = "internal",
};
static_assert(sizeof(code_names) / sizeof(*code_names) == ERROR_CODE_COUNT, "one name per code");

const char *error_code_name(enum error_code code)
{
    return code_names[code];
}

/* The largest length up to len that does not split a UTF-8 character. */
static size_t whole_characters(const char *text, size_t len)
{
    for (int i = 0; i < 3 && len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80; i++)
        len--;
    return len;
}

/* Replaces the middle of a message that is too long. A message that was shortened before is shortened at the same place
 * again, so it never has two marks. */
static void copy_message(struct error *err, const char *text, size_t len)
{
    static const char mark[] = "…";
    size_t head, tail;

    if (len < sizeof(err->message)) {
        memcpy(err->message, text, len + 1);
        return;
    }
    head = whole_characters(text, sizeof(err->message) - sizeof(mark) - MESSAGE_TAIL);
    tail = len - MESSAGE_TAIL;
    while (tail < len && ((unsigned char)text[tail] & 0xc0) == 0x80)
        tail++;
    if (strncmp(text + tail, mark, strlen(mark)) == 0)
        tail += strlen(mark);
    (void)snprintf(err->message, sizeof(err->message), "%.*s%s%s", (int)head, text, mark,
                   text + tail);
}

/* The formatted context, then ": cause" unless cause is NULL; it may be err->message. */
static void set_message(struct error *err, const char *cause, const char *fmt, va_list args)
{
    char text[CONTEXT_SIZE + sizeof(": ") + sizeof(err->message)];
    int len = vsnprintf(text, CONTEXT_SIZE, fmt, args);
    size_t used = len < 0 ? 0 : (size_t)len;

    if (used >= CONTEXT_SIZE)
        used = whole_characters(text, CONTEXT_SIZE - 4);
    text[used] = '\0';
    if (cause)
        used += (size_t)snprintf(text + used, sizeof(text) - used, ": %s", cause);
    copy_message(err, text, used);
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
    va_list args;

    err->code = code;
    err->errnum = 0;
    err->retry_after_s = 0;
    va_start(args, fmt);
    set_message(err, NULL, fmt, args);
    va_end(args);
    return -1;
}

static enum error_code code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return ERROR_NOT_FOUND;
    case EEXIST:
        return ERROR_EXISTS;
    case ENOSPC:
    case EDQUOT:
        return ERROR_NO_SPACE;
    case ETIMEDOUT:
        return ERROR_TIMEOUT;
    default:
        return ERROR_INTERNAL;
    }
}

int error_set_errno(struct error *err, int errnum, const char *fmt, ...)
{
    va_list args;

    err->code = code_of_errno(errnum);
    err->errnum = errnum;
    err->retry_after_s = 0;
    va_start(args, fmt);
    set_message(err, strerror(errnum), fmt, args);
    va_end(args);
    return -1;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_message(err, err->message, fmt, args);
    va_end(args);
    return -1;
}
