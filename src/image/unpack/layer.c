/* Layers of an image, applied one after the other to one tree. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "image/unpack/entry.h"
#include "image/unpack/unpack.h"

static const uint64_t usual_bytes_max = 64ull * 1000 * 1000 * 1000;
static const char whiteout[] = ".wh.", special[] = ".wh..wh.", opaque[] = ".wh..wh..opq";

static bool starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* The directory of the path, which the tree keeps, is what the layers below do not show through. */
static int apply_opaque(struct tree *tree, const char *path, struct error *err)
{
    char dir[TREE_PATH_SIZE];
    const char *slash = strrchr(path, '/'), *name;

    if (!slash)
        return tree_parent(tree, "x", &name, err) < 0 ? -1 : tree_prune(tree, ".", true, err);
    (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    if (tree_parent(tree, dir, &name, err) < 0)
        return -1;
    return tree_prune(tree, name, true, err);
}

/* 1: it was one, 0: it is an ordinary name. */
static int apply_whiteout(struct tree *tree, const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *hidden;
    struct error why = {0};

    if (!starts(name, whiteout))
        return 0;
    if (strcmp(name, opaque) == 0)
        return apply_opaque(tree, path, err) < 0 ? -1 : 1;
    if (starts(name, special))
        return 1; /* another file system's notes */
    hidden = name + strlen(whiteout);
    if (*hidden == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
        return error_set(err, ERROR_INVALID, "the name '%.200s' hides nothing that can be", path);
    if (tree_parent_find(tree, path, &name, &why) < 0)
        return 1; /* nothing is there */
    return tree_prune(tree, hidden, false, err) < 0 ? -1 : 1;
}

static int apply_top(struct writer *writer, struct archive_entry *entry, struct error *err)
{
    if (archive_entry_filetype(entry) != AE_IFDIR)
        return 0;
    return entry_set_dir(writer, writer->tree.root, entry, "", err);
}

static int apply_entry(struct writer *writer, struct archive *archive, struct archive_entry *entry,
                       struct error *err)
{
    const char *name = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);
    char path[TREE_PATH_SIZE], target[TREE_PATH_SIZE];
    int r;

    if (!name)
        return error_set(err, ERROR_INVALID, "an entry has no name");
    if (tree_count_entry(&writer->tree, err) < 0 || tree_clean(name, path, err) < 0 ||
        (link && tree_clean(link, target, err) < 0))
        return -1;
    if (path[0] == '\0')
        return apply_top(writer, entry, err);
    r = apply_whiteout(&writer->tree, path, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return entry_write(writer, archive, entry, path, link ? target : NULL, err);
}

static int apply_layer(struct writer *writer, const char *file, struct error *err)
{
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct archive_entry *entry;
    struct archive *archive;
    struct reading reading;
    int r;

    if (fd < 0)
        return error_set_errno(err, errno, "cannot open '%s'", file);
    archive = reading_open(&reading, fd, file, err);
    if (!archive)
        return -1;
    tree_made_clear(&writer->tree);
    while ((r = reading_next(&reading, archive, &entry, file, err)) > 0)
        if (apply_entry(writer, archive, entry, err) < 0) {
            r = error_prefix(err, "layer '%s'", file);
            break;
        }
    tree_late_set(&writer->tree);
    reading_close(&reading, archive);
    return r;
}

int unpack_apply(const char *into, const char *const *files, size_t count, uint64_t bytes_max,
                 struct error *err)
{
    struct writer writer = {.replace = true, .mode = -1};
    int r = 0;

    if (tree_open(&writer.tree, into, err) < 0)
        return -1;
    writer.tree.bytes_max = bytes_max ? bytes_max : usual_bytes_max;
    for (size_t i = 0; i < count && r == 0; i++)
        r = apply_layer(&writer, files[i], err);
    tree_close(&writer.tree);
    return r;
}
