/* What a client of /files controls: negotiation headers, signatures, gzip bodies. The first byte
 * chooses. */
#include <stdint.h>
#include <stdlib.h>

#include "envd/core/auth.h"
#include "envd/files/files_accept.h"
#include "envd/files/gzip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int drop(void *arg, struct str data)
{
    size_t *left = arg;

    *left -= data.len < *left ? data.len : *left;
    return *left > 0 ? 0 : -1;
}

static void try_part(struct str text)
{
    static const char *const names[] = {"range",         "if-range",
                                        "if-none-match", "if-modified-since",
                                        "if-match",      "if-unmodified-since"};
    struct files_version version = {.size = 1000, .mtime_s = 784111777, .etag = "\"a\""};
    struct pair items[6];
    struct http_headers headers = {items, 0};
    struct files_answer answer;

    while (text.p && headers.count < 6) {
        items[headers.count].name = str_of(names[headers.count]);
        items[headers.count++].value = str_split(&text, '\n');
    }
    answer = files_accept_part(&headers, &version);
    if (answer.offset < 0 || answer.length < 0 || answer.offset + answer.length > version.size)
        abort();
    if (answer.status == 206 && answer.length == 0)
        abort();
}

static void try_signature(struct str text)
{
    struct settings settings = {.token = "secret"};
    struct auth_signature signature = {.operation = "read"};
    struct error err = {0};

    signature.path = str_split(&text, '\n');
    signature.username = str_split(&text, '\n');
    signature.signature = str_split(&text, '\n');
    signature.expiration = text;
    if (auth_check_files(&settings, STR_NONE, &signature, 100, &err) == 0)
        abort(); /* without the token nobody can sign */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t left = 1 << 20;
    struct error err = {0};
    struct gunzip *gunzip;
    struct str text;

    if (size == 0)
        return 0;
    text = str_n(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        (void)files_accept_encoding(text, size & 1);
        (void)files_content_encoding(text);
        break;
    case 1:
        try_part(text);
        break;
    case 2:
        try_signature(text);
        break;
    default:
        gunzip = gunzip_new();
        if (gunzip_feed(gunzip, text, drop, &left, &err) == 0)
            (void)gunzip_feed(gunzip, text, drop, &left, &err);
        gunzip_free(gunzip);
        break;
    }
    return 0;
}
