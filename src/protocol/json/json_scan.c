#include "protocol/json/json_scan.h"

enum { WINDOW = 4096 };

static bool at_end(const struct json_scan *scan)
{
    return scan->at >= scan->text.len;
}

static bool fail(struct json_scan *scan)
{
    scan->broken = true;
    return false;
}

char json_scan_peek(struct json_scan *scan)
{
    while (!at_end(scan) && strchr(" \t\r\n", scan->text.p[scan->at]) && scan->text.p[scan->at])
        scan->at++;
    return at_end(scan) ? '\0' : scan->text.p[scan->at];
}

bool json_scan_open(struct json_scan *scan, char c)
{
    if (json_scan_peek(scan) != c)
        return false;
    scan->at++;
    scan->first = c != ':';
    return true;
}

bool json_scan_item(struct json_scan *scan, char close)
{
    char c = json_scan_peek(scan);
    bool first = scan->first;

    scan->first = false;
    if (scan->broken)
        return false;
    if (c == close) {
        scan->at++;
        return false;
    }
    if (first)
        return c ? true : fail(scan);
    if (c != ',')
        return fail(scan);
    scan->at++;
    return true;
}

/* ---- strings ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four digits behind "\u". */
static bool read_unit(struct json_scan *scan, unsigned *out)
{
    unsigned value = 0;

    if (scan->text.len - scan->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(scan->text.p[scan->at++]);

        if (digit < 0)
            return false;
        value = value << 4 | (unsigned)digit;
    }
    *out = value;
    return true;
}

static bool add_utf8(struct buf *out, unsigned c)
{
    char bytes[4];
    size_t n;

    if (c < 0x80) {
        bytes[0] = (char)c;
        n = 1;
    } else if (c < 0x800) {
        bytes[0] = (char)(0xc0 | c >> 6);
        n = 2;
    } else if (c < 0x10000) {
        bytes[0] = (char)(0xe0 | c >> 12);
        n = 3;
    } else {
        bytes[0] = (char)(0xf0 | c >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        bytes[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    return buf_add(out, bytes, n);
}

static bool add_escaped_unit(struct json_scan *scan, struct buf *out)
{
    unsigned unit, low;

    if (!read_unit(scan, &unit))
        return fail(scan);
    if (unit >= 0xd800 && unit < 0xdc00) {
        if (scan->text.len - scan->at < 6 || scan->text.p[scan->at] != '\\' ||
            scan->text.p[scan->at + 1] != 'u')
            return fail(scan);
        scan->at += 2;
        if (!read_unit(scan, &low) || low < 0xdc00 || low > 0xdfff)
            return fail(scan);
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    } else if (unit >= 0xdc00 && unit < 0xe000) {
        return fail(scan);
    }
    return add_utf8(out, unit);
}

static bool add_escape(struct json_scan *scan, struct buf *out)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    char c;

    scan->at++; /* the backslash */
    if (at_end(scan))
        return fail(scan);
    c = scan->text.p[scan->at++];
    if (c == 'u')
        return add_escaped_unit(scan, out);
    letter = c ? strchr(letters, c) : NULL;
    return letter ? buf_add_char(out, meanings[letter - letters]) : fail(scan);
}

/* How many characters stand for themselves. A window at a time, so that many escapes do not mean many looks for
 * a closing quote that is far away. */
static size_t plain_length(const char *p, size_t len)
{
    const char *found;

    len = len < WINDOW ? len : WINDOW;
    found = memchr(p, '"', len);
    len = found ? (size_t)(found - p) : len;
    found = memchr(p, '\\', len);
    return found ? (size_t)(found - p) : len;
}

bool json_scan_string(struct json_scan *scan, struct buf *out)
{
    if (json_scan_peek(scan) != '"')
        return false;
    scan->at++;
    while (!at_end(scan)) {
        const char *p = scan->text.p + scan->at;
        size_t n = plain_length(p, scan->text.len - scan->at);

        if (!buf_add(out, p, n))
            return false;
        scan->at += n;
        if (!at_end(scan) && p[n] == '"') {
            scan->at++;
            return true;
        }
        if (!at_end(scan) && p[n] == '\\' && !add_escape(scan, out))
            return false;
    }
    return fail(scan);
}

/* ---- other values ---- */

struct str json_scan_word(struct json_scan *scan)
{
    size_t begin;

    (void)json_scan_peek(scan);
    begin = scan->at;
    while (!at_end(scan) && !strchr(" \t\r\n,:{}[]\"", scan->text.p[scan->at]))
        scan->at++;
    return str_n(scan->text.p + begin, scan->at - begin);
}

static void skip_string(struct json_scan *scan)
{
    for (scan->at++; !at_end(scan) && scan->text.p[scan->at] != '"'; scan->at++)
        if (scan->text.p[scan->at] == '\\')
            scan->at++;
    if (at_end(scan)) {
        scan->at = scan->text.len;
        (void)fail(scan);
    } else {
        scan->at++;
    }
}

void json_scan_skip(struct json_scan *scan)
{
    size_t depth = 0;

    do {
        char c = json_scan_peek(scan);

        if (c == '"') {
            skip_string(scan);
        } else if (c == '{' || c == '[') {
            depth++;
            scan->at++;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
            scan->at++;
        } else if ((c == ',' || c == ':') && depth > 0) {
            scan->at++;
        } else if (json_scan_word(scan).len == 0) {
            (void)fail(scan);
        }
    } while (depth > 0 && !scan->broken);
    scan->first = false;
}
