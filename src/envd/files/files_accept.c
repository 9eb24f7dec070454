#include "envd/files/files_accept.h"

#include <stdlib.h>
#include <time.h>

/* ---- encodings ---- */

/* In thousandths; what cannot be read counts as 1. */
static int quality_of(struct str text)
{
    int value, digit = 100;

    text = str_trim(text);
    if (text.len == 0 || (text.p[0] != '0' && text.p[0] != '1') ||
        (text.len > 1 && text.p[1] != '.'))
        return 1000;
    value = (text.p[0] - '0') * 1000;
    for (size_t i = 2; i < text.len; i++, digit /= 10) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return 1000;
        value += (text.p[i] - '0') * digit;
    }
    return value < 1000 ? value : 1000;
}

struct coding {
    struct str name;
    int quality;
};

static struct coding parse_coding(struct str item)
{
    struct coding coding = {.quality = 1000};

    coding.name = str_trim(str_split(&item, ';'));
    while (item.p) {
        struct str parameter = str_split(&item, ';');
        struct str name = str_trim(str_split(&parameter, '='));

        if (parameter.p && str_eq_nocase(name, STR("q")))
            coding.quality = quality_of(parameter);
    }
    return coding;
}

/* What the header says of each; -1: nothing. The first of the best is preferred. */
struct preferences {
    int gzip, identity, any;
    enum files_encoding first; /* of equals */
};

static void read_preferences(struct str header, struct preferences *out)
{
    *out = (struct preferences){-1, -1, -1, FILES_NOTHING};
    while (header.p) {
        struct coding coding = parse_coding(str_split(&header, ','));
        enum files_encoding kind = FILES_NOTHING;

        if (str_eq_nocase(coding.name, STR("gzip"))) {
            out->gzip = coding.quality;
            kind = FILES_GZIP;
        } else if (str_eq_nocase(coding.name, STR("identity"))) {
            out->identity = coding.quality;
            kind = FILES_IDENTITY;
        } else if (str_is(coding.name, "*")) {
            out->any = coding.quality;
            kind = FILES_IDENTITY;
        }
        if (out->first == FILES_NOTHING)
            out->first = kind;
    }
}

enum files_encoding files_accept_encoding(struct str header, bool identity_only)
{
    struct preferences want;
    bool may_identity, may_gzip;
    int identity, gzip;

    read_preferences(header, &want);
    may_identity = want.identity > 0 || (want.identity < 0 && want.any != 0);
    may_gzip = want.gzip > 0 || (want.gzip < 0 && want.any > 0);
    if (identity_only)
        return may_identity ? FILES_IDENTITY : FILES_NOTHING;
    if (!may_gzip)
        return may_identity ? FILES_IDENTITY : FILES_NOTHING;
    if (!may_identity)
        return FILES_GZIP;
    /* Identity that is not named is the last resort, except that a star stands for it. */
    identity = want.identity > want.any ? want.identity : want.any;
    gzip = want.gzip;
    if (gzip == identity)
        return want.first;
    return gzip > identity ? FILES_GZIP : FILES_IDENTITY;
}

enum files_encoding files_content_encoding(struct str header)
{
    struct str name = parse_coding(header).name;

    if (name.len == 0 || str_eq_nocase(name, STR("identity")))
        return FILES_IDENTITY;
    return str_eq_nocase(name, STR("gzip")) ? FILES_GZIP : FILES_NOTHING;
}

/* ---- dates ---- */

void files_accept_date(int64_t seconds, char out[FILES_DATE_SIZE])
{
    time_t time = (time_t)seconds;
    struct tm tm;

    if (!gmtime_r(&time, &tm) ||
        strftime(out, FILES_DATE_SIZE, "%a, %d %b %Y %H:%M:%S GMT", &tm) == 0)
        out[0] = '\0';
}

bool files_accept_parse_date(struct str text, int64_t *out_seconds)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %e %H:%M:%S %Y"};
    char copy[64];

    if (!str_copy(text, copy, sizeof(copy)))
        return false;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = {0};
        const char *end = strptime(copy, forms[i], &tm);

        if (!end || *end != '\0')
            continue;
        *out_seconds = (int64_t)timegm(&tm);
        return true;
    }
    return false;
}

/* ---- conditions ---- */

static struct str get(const struct http_headers *headers, const char *name)
{
    return http_headers_get(headers, name);
}

bool files_accept_is_conditional(const struct http_headers *headers)
{
    static const char *const names[] = {"range",         "if-range",
                                        "if-none-match", "if-modified-since",
                                        "if-match",      "if-unmodified-since"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (get(headers, names[i]).len > 0)
            return true;
    return false;
}

/* weak: W/"x" counts as "x". */
static bool has_etag(struct str list, const char *etag, bool weak)
{
    while (list.p) {
        struct str item = str_trim(str_split(&list, ','));

        if (str_is(item, "*"))
            return true;
        if (weak && str_starts(item, STR("W/")))
            item = str_skip(item, 2);
        if (str_is(item, etag))
            return true;
    }
    return false;
}

/* True when the file has changed after the header's date; a date that is none says nothing. */
static bool changed_since(struct str date, const struct files_version *version, bool *out_changed)
{
    int64_t seconds;

    if (!date.len || !files_accept_parse_date(date, &seconds))
        return false;
    *out_changed = version->mtime_s > seconds;
    return true;
}

/* 200 when the request goes on. */
static int check_conditions(const struct http_headers *headers, const struct files_version *version)
{
    struct str match = get(headers, "if-match"), none = get(headers, "if-none-match");
    bool changed;

    if (match.len) {
        if (!has_etag(match, version->etag, false))
            return 412;
    } else if (changed_since(get(headers, "if-unmodified-since"), version, &changed) && changed) {
        return 412;
    }
    if (none.len)
        return has_etag(none, version->etag, true) ? 304 : 200;
    if (changed_since(get(headers, "if-modified-since"), version, &changed) && !changed)
        return 304;
    return 200;
}

/* Is what the client has a part of still this file? */
static bool range_applies(struct str if_range, const struct files_version *version)
{
    int64_t seconds;

    if (!if_range.len)
        return true;
    if (if_range.p[0] == '"')
        return str_is(if_range, version->etag);
    return files_accept_parse_date(if_range, &seconds) && seconds == version->mtime_s;
}

static struct files_answer whole(const struct files_version *version)
{
    return (struct files_answer){.status = 200, .length = version->size};
}

static struct files_answer parse_range(struct str range, const struct files_version *version)
{
    struct files_answer none = {.status = 416};
    struct str first, last = range;
    int64_t begin = 0, end = INT64_MAX;

    if (!str_starts(range, STR("bytes=")))
        return none;
    last = str_skip(range, 6);
    if (str_find(last, ',') >= 0)
        return whole(version);
    first = str_trim(str_split(&last, '-'));
    if (!last.p)
        return none;
    last = str_trim(last);
    if ((first.len && !str_to_i64(first, &begin)) || (last.len && !str_to_i64(last, &end)) ||
        begin < 0 || end < 0 || (!first.len && !last.len))
        return none;
    if (version->size == 0)
        return whole(version);
    if (!first.len) { /* the last so many */
        if (end == 0)
            return none;
        begin = end < version->size ? version->size - end : 0;
        end = version->size - 1;
    }
    if (begin > end || begin >= version->size)
        return none;
    if (end >= version->size)
        end = version->size - 1;
    return (struct files_answer){.status = 206, .offset = begin, .length = end - begin + 1};
}

struct files_answer files_accept_part(const struct http_headers *headers,
                                      const struct files_version *version)
{
    struct str range = get(headers, "range");
    int status = check_conditions(headers, version);

    if (status != 200)
        return (struct files_answer){.status = status};
    if (!range.len || !range_applies(get(headers, "if-range"), version))
        return whole(version);
    return parse_range(range, version);
}
