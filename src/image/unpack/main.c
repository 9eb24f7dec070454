/* unpack: images, archives and roots, inside a box.
 *
 * It runs as root of the box, where its files have the guest's ids. What it reads may be hostile: layers are written beneath one
 * directory only, within limits. Notes go to stdout, one line with the reason to stderr when it fails (exit status 1). */
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "image/unpack/unpack.h"

enum { FILES_MAX = 1024 };

static const char usage[] =
    "usage: unpack apply --into DIR [--max-bytes N] FILE...\n"
    "       unpack copy --from FILE --to DEST [--src PREFIX] [--owner NAME|UID[:GROUP|GID]] "
    "[--mode OCT]\n"
    "                   [--into-dir] [--extract] [--exclude GLOB]... [--root DIR]\n"
    "       unpack pack [--root DIR] [--gzip] [--image] PATH...\n"
    "       unpack provision --root DIR [--bash FILE]\n";

struct options {
    const char *into, *root, *bash, *max_bytes;
    struct copy_wanted copy;
    bool gzip, image;
};

static const struct option known[] = {
    {"into", 1, NULL, 'i'},    {"max-bytes", 1, NULL, 'b'}, {"from", 1, NULL, 'f'},
    {"to", 1, NULL, 't'},      {"src", 1, NULL, 's'},       {"owner", 1, NULL, 'o'},
    {"mode", 1, NULL, 'm'},    {"into-dir", 0, NULL, 'd'},  {"extract", 0, NULL, 'x'},
    {"exclude", 1, NULL, 'e'}, {"root", 1, NULL, 'r'},      {"gzip", 0, NULL, 'z'},
    {"image", 0, NULL, 'I'},   {"bash", 1, NULL, 'B'},      {NULL, 0, NULL, 0}};

static bool take(struct options *options, int letter)
{
    struct copy_wanted *copy = &options->copy;

    switch (letter) {
    case 'i':
        options->into = optarg;
        return true;
    case 'b':
        options->max_bytes = optarg;
        return true;
    case 'f':
        copy->from = optarg;
        return true;
    case 't':
        copy->to = optarg;
        return true;
    case 's':
        copy->src = optarg;
        return true;
    case 'o':
        copy->owner = *optarg ? optarg : NULL;
        return true;
    case 'm':
        copy->mode = *optarg ? optarg : NULL;
        return true;
    case 'd':
        copy->into_dir = true;
        return true;
    case 'x':
        copy->extract = true;
        return true;
    case 'e':
        if (copy->exclude_count == COPY_EXCLUDES_MAX)
            return false;
        copy->exclude[copy->exclude_count++] = optarg;
        return true;
    case 'r':
        options->root = optarg;
        return true;
    case 'z':
        options->gzip = true;
        return true;
    case 'I':
        options->image = true;
        return true;
    case 'B':
        options->bash = optarg;
        return true;
    default:
        return false;
    }
}

static int bad_usage(void)
{
    (void)fputs(usage, stderr);
    return 2;
}

static int run_apply(struct options *options, const char *const *rest, size_t count,
                     struct error *err)
{
    uint64_t bytes_max = 0;

    if (options->max_bytes && !str_to_u64(str_of(options->max_bytes), &bytes_max))
        return 2;
    if (!options->into)
        return 2;
    return unpack_apply(options->into, rest, count, bytes_max, err);
}

static int run_copy(struct options *options, const char *const *rest, size_t count,
                    struct error *err)
{
    (void)rest;
    if (count > 0 || !options->copy.from || !options->copy.to)
        return 2;
    options->copy.root = options->root ? options->root : "/";
    options->copy.src = options->copy.src ? options->copy.src : "";
    return unpack_copy(&options->copy, err);
}

static int run_pack(struct options *options, const char *const *rest, size_t count,
                    struct error *err)
{
    struct pack_wanted wanted = {.root = options->root ? options->root : "/",
                                 .paths = rest,
                                 .count = count,
                                 .gzip = options->gzip,
                                 .image = options->image,
                                 .fd = STDOUT_FILENO};

    return count == 0 ? 2 : unpack_pack(&wanted, err);
}

static int run_provision(struct options *options, const char *const *rest, size_t count,
                         struct error *err)
{
    (void)rest;
    if (count > 0 || !options->root)
        return 2;
    return unpack_provision(options->root, options->bash, err);
}

static const struct {
    const char *name;
    int (*run)(struct options *options, const char *const *rest, size_t count, struct error *err);
} commands[] = {
    {"apply", run_apply}, {"copy", run_copy}, {"pack", run_pack}, {"provision", run_provision}};

int main(int argc, char **argv)
{
    struct options options = {0};
    struct error err = {0};
    int letter, r = 2;

    /* Names in archives are UTF-8, or bytes that are kept as they are. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)umask(0);
    if (argc < 2 || argc > FILES_MAX)
        return bad_usage();
    while ((letter = getopt_long(argc - 1, argv + 1, "", known, NULL)) != -1)
        if (!take(&options, letter))
            return bad_usage();
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            r = commands[i].run(&options, (const char *const *)argv + 1 + optind,
                                (size_t)(argc - 1 - optind), &err);
    if (r == 2)
        return bad_usage();
    if (fflush(stdout) != 0 && r == 0)
        r = error_set(&err, ERROR_INTERNAL, "cannot write to stdout");
    if (r < 0)
        (void)fprintf(stderr, "unpack: %s\n", err.message);
    return r < 0 ? 1 : 0;
}
