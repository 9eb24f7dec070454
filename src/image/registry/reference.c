#include "image/registry/reference.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool digest_ok(struct str text)
{
    if (!str_starts(text, STR("sha256:")) || text.len != DIGEST_SIZE - 1)
        return false;
    for (size_t i = sizeof("sha256:") - 1; i < text.len; i++)
        if (!(text.p[i] >= '0' && text.p[i] <= '9') && !(text.p[i] >= 'a' && text.p[i] <= 'f'))
            return false;
    return true;
}

static bool lower(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Letters and digits with single separators ".", "_", "__" or dashes between them. */
static bool component_ok(struct str part)
{
    if (part.len == 0 || !lower(part.p[0]) || !lower(part.p[part.len - 1]))
        return false;
    for (size_t i = 0; i < part.len; i++) {
        char c = part.p[i];

        if (!lower(c) && c != '.' && c != '_' && c != '-')
            return false;
        if (c == '.' && !lower(part.p[i + 1]))
            return false;
    }
    return true;
}

static bool repository_ok(struct str text)
{
    while (text.p)
        if (!component_ok(str_split(&text, '/')))
            return false;
    return true;
}

static bool tag_ok(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];

        if (!isalnum(c) && c != '_' && (i == 0 || (c != '.' && c != '-')))
            return false;
    }
    return text.len > 0 && text.len < REFERENCE_TAG_SIZE;
}

static bool port_ok(struct str text)
{
    uint64_t port;

    return !text.p || (text.len <= 5 && str_to_u64(text, &port) && port > 0 && port < 65536);
}

/* A name, an IPv4 address or an IPv6 address in brackets, and maybe a port. */
static bool host_ok(struct str text)
{
    struct str name = text, port = STR_NONE;
    ptrdiff_t end = str_find(text, ']'), colon;

    if (text.len > 0 && text.p[0] == '[') {
        if (end < 0)
            return false;
        for (ptrdiff_t i = 1; i < end; i++)
            if (!isxdigit((unsigned char)text.p[i]) && text.p[i] != ':' && text.p[i] != '.')
                return false;
        port = str_skip(text, (size_t)end + 1);
        if (port.len > 0 && port.p[0] != ':')
            return false;
        return end > 1 && port_ok(port.len > 0 ? str_skip(port, 1) : STR_NONE);
    }
    colon = str_find(text, ':');
    if (colon >= 0) {
        name = str_n(text.p, (size_t)colon);
        port = str_skip(text, (size_t)colon + 1);
    }
    for (size_t i = 0; i < name.len; i++)
        if (!isalnum((unsigned char)name.p[i]) && name.p[i] != '.' && name.p[i] != '-')
            return false;
    return name.len > 0 && name.p[0] != '.' && name.p[0] != '-' && port_ok(port);
}

/* The first part is a host when it cannot be a part of a repository. */
static bool names_host(struct str first, bool more)
{
    if (!more)
        return false;
    return str_is(first, "localhost") || str_find(first, '.') >= 0 || str_find(first, ':') >= 0;
}

static int wrong(struct str text, const char *what, struct error *err)
{
    return error_set(err, ERROR_INVALID, "'%.*s' is no name of an image: %s",
                     (int)(text.len < 120 ? text.len : 120), text.p ? text.p : "", what);
}

static int split_host(struct str text, struct str *name, struct reference *out, struct error *err)
{
    struct str rest = *name, first = str_split(&rest, '/');
    bool hub;

    (void)str_copy(STR("docker.io"), out->host, sizeof(out->host));
    if (names_host(first, rest.p != NULL)) {
        if (!host_ok(first) || !str_copy(first, out->host, sizeof(out->host)))
            return wrong(text, "its registry has no valid name", err);
        str_lower(str_of(out->host), out->host);
        *name = rest;
    }
    hub = strcmp(out->host, "index.docker.io") == 0 ||
          strcmp(out->host, "registry-1.docker.io") == 0 || strcmp(out->host, "docker.io") == 0;
    if (hub)
        (void)str_copy(STR("docker.io"), out->host, sizeof(out->host));
    if (hub && str_find(*name, '/') < 0)
        (void)snprintf(out->repository, sizeof(out->repository), "library/");
    return 0;
}

int reference_parse(struct str text, struct reference *out, struct error *err)
{
    struct str name = text, digest = STR_NONE, tag = STR_NONE;
    ptrdiff_t at = str_find(text, '@');
    size_t prefix;

    *out = (struct reference){0};
    if (at >= 0) {
        digest = str_skip(text, (size_t)at + 1);
        name.len = (size_t)at;
        if (!digest_ok(digest) || !str_copy(digest, out->digest, sizeof(out->digest)))
            return wrong(text, "what follows the '@' is no sha256 digest", err);
    }
    for (size_t i = name.len; i > 0 && name.p[i - 1] != '/'; i--)
        if (name.p[i - 1] == ':') {
            tag = str_skip(name, i);
            name.len = i - 1;
            break;
        }
    if (tag.p && (!tag_ok(tag) || !str_copy(tag, out->tag, sizeof(out->tag))))
        return wrong(text, "its tag is not valid", err);
    if (split_host(text, &name, out, err) < 0)
        return -1;
    prefix = strlen(out->repository);
    if (!repository_ok(name) || name.len == 0 ||
        !str_copy(name, out->repository + prefix, sizeof(out->repository) - prefix))
        return wrong(text, "its repository has no valid name (lower case)", err);
    if (!tag.p && !digest.p)
        (void)str_copy(STR("latest"), out->tag, sizeof(out->tag));
    return 0;
}

void reference_format(const struct reference *reference, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s%s%s%s%s", reference->host, reference->repository,
                   reference->tag[0] ? ":" : "", reference->tag, reference->digest[0] ? "@" : "",
                   reference->digest);
}
