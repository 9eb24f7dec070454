/* An error is a value on the caller's stack: set where the failure is seen, prefixed on the way
 * up, and turned into an HTTP or Connect answer in exactly one table (protocol/http/http_errors.c).
 *
 * Functions that can fail return 0 or -1 and take `struct error *err` last. All setters return -1,
 * so that a failing line is one statement: `return error_set(err, ERROR_INVALID, "...")`. */
#pragma once

enum error_code {
    ERROR_NONE = 0,
    ERROR_INVALID,      /* the request is wrong; repeating it will not help */
    ERROR_UNAUTHORIZED, /* no or unknown credentials */
    ERROR_FORBIDDEN,    /* known, but not allowed */
    ERROR_NOT_FOUND,
    ERROR_CONFLICT, /* the object is in a state that does not allow this */
    ERROR_EXISTS,   /* already there */
    ERROR_LIMIT,    /* a size limit of the request */
    ERROR_QUOTA,    /* a quota or rate; try later */
    ERROR_NO_SPACE, /* disk full */
    ERROR_TIMEOUT,
    ERROR_UNAVAILABLE, /* a part we depend on is not there now; try later */
    ERROR_UNSUPPORTED,
    ERROR_INTERNAL, /* our fault or the host's; logged in full */
    ERROR_CODE_COUNT,
};

/* A part of it was done: who tries again by himself would do that twice. */
enum { ERROR_RETRY_NEVER = -1 };

struct error {
    enum error_code code;
    int errnum;        /* errno behind it, or 0 */
    int retry_after_s; /* when it may be tried again, 0 = not known, or ERROR_RETRY_NEVER */
    /* Outermost context first, the cause last; names in single quotes, no secrets. Of a message that is too long, "…"
     * replaces the middle: the cause stays. */
    char message[320];
};

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends ": <strerror>"; the code is derived from errnum (ENOSPC, ENOENT, ...), else INTERNAL. */
int error_set_errno(struct error *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the message already there. */
int error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *error_code_name(enum error_code code);
