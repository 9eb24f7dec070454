#include "protocol/rpc/proto_scan.h"

static bool at_end(const struct proto_scan *scan)
{
    return scan->at >= scan->text.len;
}

static bool fail(struct proto_scan *scan)
{
    scan->broken = true;
    return false;
}

char proto_scan_peek(struct proto_scan *scan)
{
    while (!at_end(scan) && strchr(" \t\r\n", scan->text.p[scan->at]) && scan->text.p[scan->at])
        scan->at++;
    return at_end(scan) ? '\0' : scan->text.p[scan->at];
}

bool proto_scan_open(struct proto_scan *scan, char c)
{
    if (proto_scan_peek(scan) != c)
        return false;
    scan->at++;
    scan->first = c != ':';
    return true;
}

bool proto_scan_item(struct proto_scan *scan, char close)
{
    char c = proto_scan_peek(scan);
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
static bool read_unit(struct proto_scan *scan, unsigned *out)
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

static bool add_escaped_unit(struct proto_scan *scan, struct buf *out)
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

static bool add_escape(struct proto_scan *scan, struct buf *out)
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

bool proto_scan_string(struct proto_scan *scan, struct buf *out)
{
    if (proto_scan_peek(scan) != '"')
        return false;
    scan->at++;
    while (!at_end(scan)) {
        const char *p = scan->text.p + scan->at;
        size_t left = scan->text.len - scan->at, n = 0;

        while (n < left && p[n] != '"' && p[n] != '\\')
            n++;
        if (!buf_add(out, p, n))
            return false;
        scan->at += n;
        if (n < left && p[n] == '"') {
            scan->at++;
            return true;
        }
        if (n < left && !add_escape(scan, out))
            return false;
    }
    return fail(scan);
}

/* ---- other values ---- */

struct str proto_scan_word(struct proto_scan *scan)
{
    size_t begin;

    (void)proto_scan_peek(scan);
    begin = scan->at;
    while (!at_end(scan) && !strchr(" \t\r\n,:{}[]\"", scan->text.p[scan->at]))
        scan->at++;
    return str_n(scan->text.p + begin, scan->at - begin);
}

static void skip_string(struct proto_scan *scan)
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

void proto_scan_skip(struct proto_scan *scan)
{
    size_t depth = 0;

    do {
        char c = proto_scan_peek(scan);

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
        } else if (proto_scan_word(scan).len == 0) {
            (void)fail(scan);
        }
    } while (depth > 0 && !scan->broken);
    scan->first = false;
}
