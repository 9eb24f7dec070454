/* Bytes that come compressed, in every kind: whole, in streams one after the other, cut off and damaged. */
#include "image/unpack/source.h"

#include <bzlib.h>
#include <lzma.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"

enum { TEXT = 1000 * 1000, ROOM = 2 * TEXT };

static size_t by_gzip(const char *p, size_t len, char *out)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)p,
                  .avail_in = (unsigned)len,
                  .next_out = (unsigned char *)out,
                  .avail_out = ROOM};

    CHECK_INT(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    CHECK_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
    CHECK_INT(deflateEnd(&z), Z_OK);
    return z.total_out;
}

static size_t by_zstd(const char *p, size_t len, char *out)
{
    ZSTD_CCtx *z = ZSTD_createCCtx();
    size_t used;

    CHECK(z && !ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1)));
    used = ZSTD_compress2(z, out, ROOM, p, len);
    CHECK(!ZSTD_isError(used));
    (void)ZSTD_freeCCtx(z);
    return used;
}

static size_t by_xz(const char *p, size_t len, char *out)
{
    size_t used = 0;

    CHECK_INT(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, (const uint8_t *)p, len,
                                      (uint8_t *)out, &used, ROOM),
              LZMA_OK);
    return used;
}

static size_t by_bzip2(const char *p, size_t len, char *out)
{
    unsigned used = ROOM;

    CHECK_INT(BZ2_bzBuffToBuffCompress(out, &used, (char *)(uintptr_t)p, (unsigned)len, 1, 0, 0),
              BZ_OK);
    return used;
}

static const struct {
    const char *name;
    size_t (*compress)(const char *p, size_t len, char *out);
} kinds[] = {{"gzip", by_gzip}, {"zstd", by_zstd}, {"xz", by_xz}, {"bzip2", by_bzip2}};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Every kind makes it shorter, and none by much. */
static char *make_text(void)
{
    char *text = xmalloc(TEXT);
    uint32_t seed = 1;

    for (size_t i = 0; i < TEXT; i++) {
        seed = seed * 1664525 + 1013904223;
        text[i] = (char)('a' + (seed >> 28));
    }
    return text;
}

/* Reads all that the bytes become: how many there are, or -1. They are compared with the text. */
static int64_t read_all(const char *bytes, size_t len, const char *text, struct error *err)
{
    auto_close int fd = memfd_create("source", MFD_CLOEXEC);
    struct source *source = NULL;
    const void *piece;
    int64_t at = 0;
    ssize_t got;

    CHECK(fd >= 0 && fd_write_full(fd, bytes, len) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    if (source_open(fd, "it", &source, err) < 0)
        return -1;
    while ((got = source_next(source, &piece, err)) > 0) {
        CHECK(at + got <= TEXT && memcmp(piece, text + at, (size_t)got) == 0);
        at += got;
    }
    source_close(source);
    return got < 0 ? -1 : at;
}

TEST(streams_of_every_kind)
{
    auto_free char *text = make_text(), *out = xmalloc(2 * (size_t)ROOM);
    struct error err = {0};

    CHECK_INT(read_all(text, TEXT, text, &err), TEXT);
    CHECK_INT(read_all(text, 0, text, &err), 0);
    for (size_t i = 0; i < KINDS; i++) {
        size_t len = kinds[i].compress(text, TEXT, out);

        CHECK(len < TEXT);
        CHECK_INT(read_all(out, len, text, &err), TEXT);
        len = kinds[i].compress(text, TEXT / 3, out);
        len += kinds[i].compress(text + TEXT / 3, TEXT - TEXT / 3, out + len);
        CHECK_INT(read_all(out, len, text, &err), TEXT);
        len = kinds[i].compress("", 0, out);
        CHECK_INT(read_all(out, len, text, &err), 0);
    }
}

TEST(streams_that_are_not_whole)
{
    auto_free char *text = make_text(), *out = xmalloc(ROOM);

    for (size_t i = 0; i < KINDS; i++) {
        size_t len = kinds[i].compress(text, TEXT, out);
        char want[64];

        FAILS((int)read_all(out, len - 5, text, &err), ERROR_INVALID, "too early");
        FAILS((int)read_all(out, len / 2, text, &err), ERROR_INVALID, "too early");
        (void)snprintf(want, sizeof(want), "%s data is damaged", kinds[i].name);
        memcpy(out + len - 8, "DAMAGED!", 8);
        FAILS((int)read_all(out, len, text, &err), ERROR_INVALID, want);
    }
}
