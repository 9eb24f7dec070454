/* Members of the configuration, each with its path for faults, and secrets behind references. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/near.h"
#include "protocol/json/json_shape.h"
#include "runtime/config/settings_internal.h"

enum { SECRET_BYTES_MAX = 65536, PATH_TEXT = 256 };

void loader_fault(struct loader *loader, const char *path, const char *fmt, ...)
{
    char message[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    (void)buf_printf(loader->faults, "%s: %s\n", path, message);
}

const char *loader_env(const struct loader *loader, const char *name)
{
    const char *value = loader->get ? loader->get(name) : NULL;

    return value && *value ? value : NULL;
}

void loader_env_int(struct loader *loader, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const char *text = loader_env(loader, name);
    int64_t value;

    if (!text)
        return;
    if (!str_to_i64(str_trim(str_of(text)), &value) || value < min || value > max)
        loader_fault(loader, name, "must be a whole number from %lld to %lld", (long long)min,
                     (long long)max);
    else
        *out = value;
}

static void join(char out[PATH_TEXT], const char *path, const char *key)
{
    (void)snprintf(out, PATH_TEXT, "%s%s%s", path, *path ? "." : "", key);
}

/* The member, when it is there and not null. */
static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    return value && !json_is_null(value) ? value : NULL;
}

void loader_int(struct loader *loader, const json_t *object, const char *path, const char *key,
                int64_t min, int64_t max, int64_t *out)
{
    const json_t *value = member(object, key);
    char where[PATH_TEXT];

    if (!value)
        return;
    join(where, path, key);
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        loader_fault(loader, where, "must be a whole number from %lld to %lld", (long long)min,
                     (long long)max);
    else
        *out = json_integer_value(value);
}

void loader_seconds(struct loader *loader, const json_t *object, const char *path, const char *key,
                    int64_t max_s, int64_t *out_ms)
{
    const json_t *value = member(object, key);
    char where[PATH_TEXT];

    if (!value)
        return;
    join(where, path, key);
    if (!json_is_number(value) || json_number_value(value) < 0 ||
        json_number_value(value) > (double)max_s)
        loader_fault(loader, where, "must be a number of seconds from 0 to %lld", (long long)max_s);
    else
        *out_ms = (int64_t)(json_number_value(value) * 1000);
}

void loader_bool(struct loader *loader, const json_t *object, const char *path, const char *key,
                 bool *out)
{
    const json_t *value = member(object, key);
    char where[PATH_TEXT];

    if (!value)
        return;
    join(where, path, key);
    if (!json_is_boolean(value))
        loader_fault(loader, where, "must be true or false");
    else
        *out = json_is_true(value);
}

void loader_text(struct loader *loader, const json_t *object, const char *path, const char *key,
                 char **out)
{
    const json_t *value = member(object, key);
    char where[PATH_TEXT];

    if (!value)
        return;
    join(where, path, key);
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        loader_fault(loader, where, "must be a string");
        return;
    }
    free(*out);
    *out = xstrdup(json_string_value(value));
}

json_t *loader_object(struct loader *loader, const json_t *object, const char *path,
                      const char *key)
{
    json_t *value = member(object, key);
    char where[PATH_TEXT];

    if (!value || json_is_object(value))
        return value;
    join(where, path, key);
    loader_fault(loader, where, "must be an object");
    return NULL;
}

void loader_known(struct loader *loader, const json_t *object, const char *path,
                  const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        const char *const *at = known, *meant;
        char where[PATH_TEXT];

        while (*at && strcmp(*at, key) != 0)
            at++;
        if (*at)
            continue;
        join(where, path, key);
        meant = near_word(str_of(key), known);
        if (meant)
            loader_fault(loader, where, "unknown member; did you mean '%s'?", meant);
        else
            loader_fault(loader, where, "unknown member");
    }
}

static char *secret_file(struct loader *loader, const char *path, const char *file)
{
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct buf text = {0};
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0) {
        loader_fault(loader, path, "file '%s': %s", file, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(st.st_mode)) {
        loader_fault(loader, path, "file '%s' is not a regular file", file);
        return NULL;
    }
    if (st.st_mode & (S_IROTH | S_IWOTH)) {
        loader_fault(loader, path, "file '%s' can be read or changed by everybody: chmod 600 it",
                     file);
        return NULL;
    }
    buf_init(&text, SECRET_BYTES_MAX);
    r = fd_read_file_at(AT_FDCWD, file, &text);
    if (r < 0) {
        loader_fault(loader, path, "file '%s': %s", file, strerror(-r));
        return NULL;
    }
    return str_dup(str_trim(buf_str(&text)));
}

char *loader_secret(struct loader *loader, const char *path, struct str reference)
{
    auto_free char *text = str_dup(reference);
    char *secret = NULL;

    if (str_starts(reference, STR("env:"))) {
        const char *value = loader_env(loader, text + 4);

        if (!value)
            loader_fault(loader, path, "the environment variable '%s' is not set", text + 4);
        else
            secret = xstrdup(value);
    } else if (str_starts(reference, STR("file:"))) {
        if (text[5] != '/')
            loader_fault(loader, path, "a file: reference needs an absolute path");
        else
            secret = secret_file(loader, path, text + 5);
    } else {
        secret = take_ptr(&text);
    }
    if (secret && (!*secret || strpbrk(secret, "\r\n"))) {
        loader_fault(loader, path, "the secret is empty or has more than one line");
        free(secret);
        return NULL;
    }
    return secret;
}
