#include "envd/files/gzip.h"

#include <zlib.h>

#include "base/alloc.h"

enum {
    PIECE = 64 * 1024,
    GZIP_WINDOW = 15 + 16, /* the largest window, with gzip's head and tail */
    /* Faster than most links; the next level costs a third of the speed for a few per cent. */
    LEVEL = 1,
};

struct gunzip {
    z_stream z;
    bool begun, ended; /* inside a member; behind one */
    unsigned char out[PIECE];
};

struct gunzip *gunzip_new(void)
{
    struct gunzip *gunzip = xcalloc(1, sizeof(*gunzip));

    if (inflateInit2(&gunzip->z, GZIP_WINDOW) != Z_OK)
        abort(); /* out of memory, as everywhere */
    return gunzip;
}

void gunzip_free(struct gunzip *gunzip)
{
    if (!gunzip)
        return;
    (void)inflateEnd(&gunzip->z);
    free(gunzip);
}

/* zlib's pointer is not const but its input is not changed. */
static void set_input(z_stream *z, struct str data)
{
    z->next_in = (unsigned char *)(uintptr_t)data.p;
    z->avail_in = (uInt)data.len;
}

static int not_gzip(const struct gunzip *gunzip, struct error *err)
{
    return error_set(err, ERROR_INVALID,
                     "error decompressing request body: failed to create gzip reader: gzip: %s",
                     gunzip->z.msg ? gunzip->z.msg : "invalid data");
}

int gunzip_feed(struct gunzip *gunzip, struct str data, gzip_sink_fn *sink, void *arg,
                struct error *err)
{
    z_stream *z = &gunzip->z;

    set_input(z, data);
    for (;;) {
        size_t made;
        int r;

        if (gunzip->ended && z->avail_in > 0) {
            gunzip->ended = false;
            if (inflateReset(z) != Z_OK)
                return not_gzip(gunzip, err);
        }
        if (gunzip->ended)
            return 0;
        gunzip->begun |= z->avail_in > 0;
        z->next_out = gunzip->out;
        z->avail_out = PIECE;
        r = inflate(z, Z_NO_FLUSH);
        made = PIECE - z->avail_out;
        if (made > 0 && sink(arg, str_n(gunzip->out, made)) != 0)
            return -1;
        if (r == Z_STREAM_END)
            gunzip->ended = true;
        else if (r == Z_BUF_ERROR || (r == Z_OK && z->avail_in == 0 && z->avail_out > 0))
            return 0; /* wants more input */
        else if (r != Z_OK)
            return not_gzip(gunzip, err);
    }
}

bool gunzip_complete(const struct gunzip *gunzip)
{
    return gunzip->ended;
}

struct gzip {
    z_stream z;
    unsigned char out[PIECE];
};

struct gzip *gzip_new(void)
{
    struct gzip *gzip = xcalloc(1, sizeof(*gzip));

    if (deflateInit2(&gzip->z, LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    return gzip;
}

void gzip_free(struct gzip *gzip)
{
    if (!gzip)
        return;
    (void)deflateEnd(&gzip->z);
    free(gzip);
}

int gzip_feed(struct gzip *gzip, struct str data, bool last, gzip_sink_fn *sink, void *arg)
{
    z_stream *z = &gzip->z;

    set_input(z, data);
    do {
        size_t made;

        z->next_out = gzip->out;
        z->avail_out = PIECE;
        (void)deflate(z, last ? Z_FINISH : Z_NO_FLUSH);
        made = PIECE - z->avail_out;
        if (made > 0 && sink(arg, str_n(gzip->out, made)) != 0)
            return -1;
    } while (z->avail_out == 0);
    return 0;
}
