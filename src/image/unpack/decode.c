#include "image/unpack/decode.h"

#include <bzlib.h>
#include <lzma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"

/* What `xz -9` and `zstd -19` need, and not much more: a box has little. */
static const uint64_t memory_max = 128 * 1024 * 1024;

static unsigned limited(size_t len)
{
    return len < UINT32_MAX ? (unsigned)len : UINT32_MAX;
}

static void move_on(struct decode_bytes *bytes, size_t in_left, size_t out_left)
{
    bytes->in += bytes->in_len - in_left;
    bytes->in_len = in_left;
    bytes->out += bytes->out_len - out_left;
    bytes->out_len = out_left;
}

/* ---- gzip ---- */

static void *gzip_open(void)
{
    z_stream *z = xcalloc(1, sizeof(*z));

    if (inflateInit2(z, 15 + 16) == Z_OK)
        return z;
    free(z);
    return NULL;
}

static enum decode_state gzip_step(void *decoder, struct decode_bytes *bytes)
{
    z_stream *z = decoder;
    int r;

    z->next_in = (unsigned char *)(uintptr_t)bytes->in; /* it only reads there */
    z->avail_in = limited(bytes->in_len);
    z->next_out = bytes->out;
    z->avail_out = limited(bytes->out_len);
    r = inflate(z, Z_NO_FLUSH);
    move_on(bytes, z->avail_in, z->avail_out);
    if (r == Z_STREAM_END)
        return inflateReset(z) == Z_OK ? DECODE_BETWEEN : DECODE_DAMAGED;
    return r == Z_OK ? DECODE_INSIDE : DECODE_DAMAGED;
}

static void gzip_close(void *decoder)
{
    (void)inflateEnd(decoder);
    free(decoder);
}

/* ---- zstd ---- */

static void *zstd_open(void)
{
    return ZSTD_createDStream();
}

static enum decode_state zstd_step(void *decoder, struct decode_bytes *bytes)
{
    ZSTD_inBuffer in = {bytes->in, bytes->in_len, 0};
    ZSTD_outBuffer out = {bytes->out, bytes->out_len, 0};
    size_t r = ZSTD_decompressStream(decoder, &out, &in);

    move_on(bytes, in.size - in.pos, out.size - out.pos);
    if (ZSTD_isError(r))
        return DECODE_DAMAGED;
    return r == 0 ? DECODE_BETWEEN : DECODE_INSIDE;
}

static void zstd_close(void *decoder)
{
    (void)ZSTD_freeDStream(decoder);
}

/* ---- xz ---- */

static bool xz_begin(lzma_stream *z)
{
    return lzma_stream_decoder(z, memory_max, 0) == LZMA_OK;
}

static void xz_close(void *decoder)
{
    lzma_end(decoder);
    free(decoder);
}

static void *xz_open(void)
{
    lzma_stream *z = xmalloc(sizeof(*z));

    *z = (lzma_stream)LZMA_STREAM_INIT;
    if (xz_begin(z))
        return z;
    xz_close(z);
    return NULL;
}

static enum decode_state xz_step(void *decoder, struct decode_bytes *bytes)
{
    lzma_stream *z = decoder;
    lzma_ret r;

    z->next_in = bytes->in;
    z->avail_in = bytes->in_len;
    z->next_out = bytes->out;
    z->avail_out = bytes->out_len;
    r = lzma_code(z, LZMA_RUN);
    move_on(bytes, z->avail_in, z->avail_out);
    if (r == LZMA_STREAM_END)
        return xz_begin(z) ? DECODE_BETWEEN : DECODE_DAMAGED;
    return r == LZMA_OK ? DECODE_INSIDE : DECODE_DAMAGED;
}

/* ---- bzip2 ---- */

static bool bzip2_begin(bz_stream *z)
{
    *z = (bz_stream){0};
    return BZ2_bzDecompressInit(z, 0, 0) == BZ_OK;
}

static void *bzip2_open(void)
{
    bz_stream *z = xmalloc(sizeof(*z));

    if (bzip2_begin(z))
        return z;
    free(z);
    return NULL;
}

static enum decode_state bzip2_step(void *decoder, struct decode_bytes *bytes)
{
    bz_stream *z = decoder;
    int r;

    z->next_in = (char *)(uintptr_t)bytes->in; /* it only reads there */
    z->avail_in = limited(bytes->in_len);
    z->next_out = (char *)bytes->out;
    z->avail_out = limited(bytes->out_len);
    r = BZ2_bzDecompress(z);
    move_on(bytes, z->avail_in, z->avail_out);
    if (r != BZ_STREAM_END)
        return r == BZ_OK ? DECODE_INSIDE : DECODE_DAMAGED;
    (void)BZ2_bzDecompressEnd(z);
    return bzip2_begin(z) ? DECODE_BETWEEN : DECODE_DAMAGED;
}

static void bzip2_close(void *decoder)
{
    (void)BZ2_bzDecompressEnd(decoder);
    free(decoder);
}

/* ---- which ---- */

static const struct decode_kind kinds[] = {
    {"gzip", "\x1f\x8b", 2, gzip_open, gzip_step, gzip_close},
    {"zstd", "\x28\xb5\x2f\xfd", 4, zstd_open, zstd_step, zstd_close},
    {"xz", "\xfd\x37zXZ", 6, xz_open, xz_step, xz_close},
    {"bzip2", "BZh", 3, bzip2_open, bzip2_step, bzip2_close},
};

const struct decode_kind *decode_kind_of(const unsigned char *p, size_t len)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (len >= kinds[i].magic_len && memcmp(p, kinds[i].magic, kinds[i].magic_len) == 0)
            return &kinds[i];
    return NULL;
}
