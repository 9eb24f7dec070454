/* Archives as no tool writes them, into directories of the test. */
#include "image/unpack/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"

struct made {
    const char *name;
    char type;        /* f, d, l, h, c, p: file, directory, symbolic and hard link, device, fifo */
    const char *text; /* content or target */
    unsigned mode;
    unsigned uid;
    const char *attribute; /* extended, with the value "v" */
    int64_t sparse;        /* so long, with the text at its end */
};

static char dir[64], into[96], outside[96];

static void setup(void)
{
    test_needs_root();
    (void)umask(0);
    (void)snprintf(dir, sizeof(dir), "/tmp/unpack-test-XXXXXX");
    CHECK(mkdtemp(dir));
    (void)snprintf(into, sizeof(into), "%s/into", dir);
    (void)snprintf(outside, sizeof(outside), "%s/outside", dir);
    CHECK_INT(mkdir(into, 0755), 0);
    CHECK_INT(mkdir(outside, 0755), 0);
}

static void teardown(void)
{
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

static void set_kind(struct archive_entry *entry, const struct made *made)
{
    static const struct {
        char letter;
        unsigned type;
    } kinds[] = {{'f', AE_IFREG}, {'d', AE_IFDIR}, {'l', AE_IFLNK},
                 {'h', AE_IFREG}, {'c', AE_IFCHR}, {'p', AE_IFIFO}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].letter == made->type)
            archive_entry_set_filetype(entry, kinds[i].type);
    if (made->type == 'l')
        archive_entry_set_symlink(entry, made->text);
    if (made->type == 'h')
        archive_entry_set_hardlink(entry, made->text);
    if (made->type == 'c')
        archive_entry_set_rdev(entry, 0);
}

static void add(struct archive *archive, const struct made *made)
{
    struct archive_entry *entry = archive_entry_new();
    size_t len = made->type == 'f' && made->text ? strlen(made->text) : 0;

    archive_entry_set_pathname(entry, made->name);
    archive_entry_set_perm(entry, made->mode          ? (mode_t)made->mode
                                  : made->type == 'd' ? 0755
                                                      : 0644);
    archive_entry_set_uid(entry, made->uid);
    archive_entry_set_mtime(entry, 1000000000, 0);
    archive_entry_set_size(entry, made->sparse ? made->sparse : (int64_t)len);
    set_kind(entry, made);
    if (made->attribute)
        archive_entry_xattr_add_entry(entry, made->attribute, "v", 1);
    if (made->sparse)
        archive_entry_sparse_add_entry(entry, made->sparse - (int64_t)len, (int64_t)len);
    CHECK(archive_write_header(archive, entry) >= ARCHIVE_WARN);
    /* The writer takes all of it and leaves out what is a hole. */
    for (int64_t at = 0; at < made->sparse - (int64_t)len;) {
        static const char zeros[1 << 20];
        int64_t left = made->sparse - (int64_t)len - at;

        at += archive_write_data(archive, zeros, left < (1 << 20) ? (size_t)left : 1 << 20);
    }
    if (len > 0)
        CHECK_INT(archive_write_data(archive, made->text, len), len);
    archive_entry_free(entry);
}

/* filter: NULL = none */
static void write_tar(const char *path, const struct made *made, const char *filter)
{
    struct archive *archive = archive_write_new();

    (void)archive_write_set_format_pax(archive);
    if (filter)
        CHECK_INT(archive_write_add_filter_by_name(archive, filter), ARCHIVE_OK);
    CHECK_INT(archive_write_open_filename(archive, path), ARCHIVE_OK);
    for (; made->name; made++)
        add(archive, made);
    CHECK_INT(archive_write_close(archive), ARCHIVE_OK);
    (void)archive_write_free(archive);
}

/* The path of an archive of these, up to one without a name; it is there until the next but one. */
static const char *tar(const struct made *made)
{
    static char paths[4][96];
    static unsigned count;
    char *path = paths[count++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%u.tar", dir, count);
    write_tar(path, made, count % 2 ? "gzip" : NULL);
    return path;
}

#define TAR(...) tar((const struct made[]){__VA_ARGS__, {0}})

static int apply(const char *first, const char *second, struct error *err)
{
    const char *files[] = {first, second};

    return unpack_apply(into, files, second ? 2 : 1, 0, err);
}

static const char *at(const char *name)
{
    static char paths[4][256];
    static unsigned count;
    char *path = paths[count++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", into, name);
    return path;
}

static bool there(const char *name)
{
    struct stat st;

    return lstat(at(name), &st) == 0;
}

static void check_text(const char *name, const char *text)
{
    auto_buf struct buf got = {0};

    buf_init(&got, 65536);
    CHECK_INT(fd_read_file_at(AT_FDCWD, at(name), &got), 0);
    CHECK_STR(buf_str(&got), text);
}

static struct stat stat_of(const char *name)
{
    struct stat st;

    CHECK_INT(lstat(at(name), &st), 0);
    return st;
}

/* Nothing but the directories of the test, and these are empty. */
static void check_outside(void)
{
    CHECK_INT(rmdir(outside), 0);
    CHECK_INT(mkdir(outside, 0755), 0);
    CHECK(access("/tmp/unpack-escaped", F_OK) < 0);
}

TEST(plain_layer)
{
    setup();
    OK(apply(TAR({"d/", 'd', .mode = 01777, .uid = 5},
                 {"d/f", 'f', "text", .mode = 04755, .uid = 7}, {"d/l", 'l', "../x"},
                 {"d/h", 'h', "d/f"}, {"p", 'p'}, {"deep/er/f", 'f', ""}),
             NULL, &err));
    check_text("d/f", "text");
    CHECK_INT(stat_of("d/f").st_mode & 07777, 04755);
    CHECK_INT(stat_of("d/f").st_uid, 7);
    CHECK_INT(stat_of("d/f").st_mtime, 1000000000);
    CHECK_INT(stat_of("d/f").st_ino, stat_of("d/h").st_ino);
    CHECK_INT(stat_of("d").st_mode & 07777, 01777);
    CHECK_INT(stat_of("d").st_uid, 5);
    CHECK_INT(stat_of("d").st_mtime, 1000000000);
    CHECK(S_ISLNK(stat_of("d/l").st_mode));
    CHECK(S_ISFIFO(stat_of("p").st_mode));
    CHECK_INT(stat_of("deep/er").st_mode & 07777, 0755);
    teardown();
}

TEST(names_that_lead_outside)
{
    static const char *const bad[] = {"../outside/x", "a/../../outside/x", "..", "a/..", "a/../b"};

    setup();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        FAILS(apply(TAR({"a/", 'd'}, {bad[i], 'f', "x"}), NULL, &err), ERROR_INVALID, "outside");
        FAILS(apply(TAR({"l", 'h', bad[i]}), NULL, &err), ERROR_INVALID, "outside");
    }
    check_outside();
    /* As if the directory were the root. */
    OK(apply(TAR({"/tmp/unpack-escaped", 'f', "x"}), NULL, &err));
    check_text("tmp/unpack-escaped", "x");
    check_outside();
    teardown();
}

TEST(links_that_lead_outside)
{
    setup();
    OK(apply(TAR({"up", 'l', "../../../../../../../.."}, {"abs", 'l', outside},
                 {"up/tmp/unpack-escaped", 'f', "x"}, {"proc", 'l', "/proc/self/root"}),
             NULL, &err));
    check_outside();
    check_text("tmp/unpack-escaped", "x");
    /* The absolute one leads to nothing beneath. */
    FAILS(apply(TAR({"abs/x", 'f', "x"}), NULL, &err), ERROR_EXISTS);
    FAILS(apply(TAR({"h", 'h', "up/etc/passwd"}), NULL, &err), ERROR_INVALID, "not there");
    /* A file in a link's place replaces the link. */
    OK(apply(TAR({"abs", 'f', "now a file"}), NULL, &err));
    check_text("abs", "now a file");
    check_outside();
    teardown();
}

TEST(hard_link_to_a_link_is_one)
{
    setup();
    OK(apply(TAR({"l", 'l', "/etc/passwd"}, {"h", 'h', "l"}, {"h", 'f', "mine"}), NULL, &err));
    check_text("h", "mine");
    CHECK(S_ISLNK(stat_of("l").st_mode));
    teardown();
}

TEST(links_of_the_image_are_followed_inside)
{
    setup();
    OK(apply(TAR({"usr/lib/", 'd'}, {"lib", 'l', "/usr/lib"}, {"run", 'l', "usr"}),
             TAR({"lib/f", 'f', "through"}, {"run/g", 'f', "too"}), &err));
    check_text("usr/lib/f", "through");
    check_text("usr/g", "too");
    CHECK(S_ISLNK(stat_of("lib").st_mode));
    /* A directory in a link's place replaces it, as in other tools. */
    OK(apply(TAR({"lib/", 'd'}, {"lib/own", 'f', "x"}), NULL, &err));
    CHECK(S_ISDIR(stat_of("lib").st_mode));
    CHECK(!there("usr/lib/own"));
    teardown();
}

TEST(devices_are_left_out)
{
    setup();
    OK(apply(TAR({"dev/null", 'c'}, {"whiteout", 'c'}, {"f", 'f', "x"}), NULL, &err));
    CHECK(!there("dev/null") && !there("whiteout") && there("f"));
    teardown();
}

TEST(attributes)
{
    char value[8];

    setup();
    OK(apply(TAR({"a", 'f', "x", .attribute = "user.kept"},
                 {"b", 'f', "x", .attribute = "trusted.overlay.opaque"},
                 {"c", 'f', "x", .attribute = "user.overlay.whiteout"},
                 {"d", 'f', "x", .attribute = "security.selinux"}),
             NULL, &err));
    CHECK_INT(getxattr(at("a"), "user.kept", value, sizeof(value)), 1);
    CHECK_INT(listxattr(at("b"), NULL, 0), 0);
    CHECK_INT(listxattr(at("c"), NULL, 0), 0);
    CHECK_INT(listxattr(at("d"), NULL, 0), 0);
    teardown();
}

TEST(whiteouts)
{
    setup();
    OK(apply(TAR({"a/x", 'f', "1"}, {"a/y", 'f', "2"}, {"b/deep/f", 'f', "3"}, {"c", 'f', "4"}),
             TAR({"a/.wh.x", 'f', ""}, {".wh.b", 'f', ""}, {".wh.c", 'f', ""}, {"c/", 'd'},
                 {"c/new", 'f', "5"}, {".wh.nothing", 'f', ""}, {"no/.wh.where", 'f', ""},
                 {".wh..wh.plnk", 'f', ""}),
             &err));
    CHECK(!there("a/x") && there("a/y") && !there("b") && there("c/new"));
    CHECK(!there("a/.wh.x") && !there(".wh..wh.plnk") && !there("no"));
    FAILS(apply(TAR({"a/.wh...", 'f', ""}), NULL, &err), ERROR_INVALID, "hides nothing");
    FAILS(apply(TAR({"a/.wh..", 'f', ""}), NULL, &err), ERROR_INVALID, "hides nothing");
    FAILS(apply(TAR({"a/.wh.", 'f', ""}), NULL, &err), ERROR_INVALID, "hides nothing");
    CHECK(there("a/y"));
    teardown();
}

TEST(opaque_directories_hide_only_what_is_below)
{
    setup();
    OK(apply(TAR({"d/old", 'f', "1"}, {"d/sub/old", 'f', "2"}, {"d/both", 'f', "old"}),
             TAR({"d/", 'd'}, {"d/new", 'f', "3"}, {"d/both", 'f', "new"}, {"d/sub/new", 'f', "4"},
                 {"d/.wh..wh..opq", 'f', ""}, {"d/later", 'f', "5"}),
             &err));
    CHECK(!there("d/old") && !there("d/sub/old") && !there("d/.wh..wh..opq"));
    check_text("d/both", "new");
    CHECK(there("d/new") && there("d/sub/new") && there("d/later"));
    teardown();
}

TEST(a_whiteout_behind_a_link_stays_inside)
{
    char victim[160];

    setup();
    (void)snprintf(victim, sizeof(victim), "%s/victim", outside);
    CHECK_INT(mkdir(victim, 0755), 0);
    OK(apply(TAR({"abs", 'l', outside}, {"up", 'l', "../outside"}),
             TAR({"abs/.wh.victim", 'f', ""}, {"up/.wh.victim", 'f', ""}), &err));
    CHECK_INT(rmdir(victim), 0);
    teardown();
}

TEST(kinds_replace_each_other)
{
    setup();
    OK(apply(
        TAR({"a/in/side", 'f', "1"}, {"b", 'f', "2"}, {"c", 'l', "b"}, {"d/x", 'f', "y"}),
        TAR({"a", 'f', "file"}, {"b/", 'd'}, {"b/f", 'f', "3"}, {"c", 'f', "4"}, {"d", 'h', "b/f"}),
        &err));
    check_text("a", "file");
    check_text("b/f", "3");
    check_text("c", "4");
    check_text("d", "3");
    teardown();
}

TEST(sparse_files_stay_sparse)
{
    struct stat st;

    setup();
    OK(apply(TAR({"huge", 'f', "end", .sparse = (int64_t)40 << 30}), NULL, &err));
    st = stat_of("huge");
    CHECK_INT(st.st_size, (int64_t)40 << 30);
    CHECK(st.st_blocks < 1024);
    teardown();
}

TEST(limits)
{
    char deep[3000] = "", wide[400];
    const char *file;

    setup();
    for (int i = 0; i < 300; i++)
        (void)snprintf(deep + strlen(deep), sizeof(deep) - strlen(deep), "d/");
    memset(wide, 'w', sizeof(wide) - 1);
    wide[sizeof(wide) - 1] = '\0';
    FAILS(apply(TAR({deep, 'd'}), NULL, &err), ERROR_LIMIT, "too deep");
    FAILS(apply(TAR({wide, 'f', "x"}), NULL, &err), ERROR_LIMIT, "too long");
    file = TAR({"f", 'f', "0123456789"});
    OK(unpack_apply(into, &file, 1, 10, &err));
    FAILS(unpack_apply(into, &file, 1, 9, &err), ERROR_LIMIT, "of files");
    teardown();
}

TEST(what_is_no_archive)
{
    char path[96];
    const char *file = path;
    int fd;

    setup();
    (void)snprintf(path, sizeof(path), "%s/bad", dir);
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    OK(unpack_apply(into, &file, 1, 0, &err)); /* nothing is a layer of nothing */
    CHECK_INT(write(fd, "this is no tar at all, is it?", 29), 29);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID);
    CHECK_INT(pwrite(fd, "\x1f\x8b\x08 and no gzip", 16, 0), 16);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID, "damaged");
    CHECK_INT(pwrite(fd, "\x28\xb5\x2f\xfd and no zstd", 16, 0), 16);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID, "zstd data is damaged");
    CHECK_INT(pwrite(fd, "\xfd\x37zXZ\0 and no xz", 16, 0), 16);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID, "xz data is damaged");
    CHECK_INT(pwrite(fd, "BZh9 and no bzip2", 16, 0), 16);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID, "bzip2 data is damaged");
    (void)close(fd);
    teardown();
}

/* A header of a file that is so long, by hand. */
static void header(char out[512], unsigned long size)
{
    unsigned sum = 0;

    memset(out, 0, 512);
    out[0] = 'f';
    (void)snprintf(out + 100, 8, "%07o", 0644);
    (void)snprintf(out + 124, 12, "%011lo", size);
    memset(out + 148, ' ', 8);
    out[156] = '0';
    memcpy(out + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)out[i];
    (void)snprintf(out + 148, 8, "%06o", sum);
}

TEST(what_becomes_too_large_for_its_size)
{
    enum { SIZE = 200 << 20 };
    auto_free char *zeros = xcalloc(1, SIZE), *packed = xmalloc(1 << 20);
    char path[96];
    const char *file = path;
    size_t len;
    int fd;

    setup();
    header(zeros, SIZE - 512);
    len = ZSTD_compress(packed, 1 << 20, zeros, SIZE, 1);
    CHECK(!ZSTD_isError(len));
    (void)snprintf(path, sizeof(path), "%s/bomb", dir);
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    CHECK_INT(write(fd, packed, len), len);
    (void)close(fd);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID);
    CHECK(stat_of("f").st_size < SIZE - 512);
    teardown();
}

TEST(half_an_archive)
{
    const char *file;
    struct stat st;

    setup();
    file = TAR({"a", 'f', "x"}, {"b", 'f', "some more text that is compressed"});
    CHECK_INT(stat(file, &st), 0);
    CHECK_INT(truncate(file, st.st_size - 20), 0);
    FAILS(unpack_apply(into, &file, 1, 0, &err), ERROR_INVALID);
    teardown();
}

/* ---- copy ---- */

static const char *context(void)
{
    return TAR({"a.txt", 'f', "a", .mode = 0640, .uid = 501},
               {"dir", 'd', .mode = 0700, .uid = 501}, {"dir/b", 'f', "b", .uid = 501},
               {"dir/sub/c", 'f', "c"}, {"dir/l", 'l', "b"}, {"dir/h", 'h', "dir/b"});
}

static int copy(const char *src, const char *to, const char *owner, struct error *err)
{
    struct copy_wanted wanted = {
        .from = context(), .root = into, .to = to, .src = src, .owner = owner};

    return unpack_copy(&wanted, err);
}

TEST(copies_of_files)
{
    setup();
    OK(copy("a.txt", "/new/name", "7:8", &err));
    check_text("new/name", "a");
    CHECK_INT(stat_of("new/name").st_uid, 7);
    CHECK_INT(stat_of("new/name").st_gid, 8);
    CHECK_INT(stat_of("new/name").st_mode & 07777, 0640);
    CHECK_INT(stat_of("new").st_uid, 7);
    OK(copy("a.txt", "/folder/", "0", &err));
    check_text("folder/a.txt", "a");
    OK(copy("a.txt", "/new", "0", &err)); /* is a directory */
    check_text("new/a.txt", "a");
    OK(copy("./a.txt", "/own", NULL, &err));
    CHECK_INT(stat_of("own").st_uid, 501);
    OK(copy("dir/l", "/link", "0", &err));
    CHECK(S_ISLNK(stat_of("link").st_mode));
    FAILS(copy("nope", "/x", "0", &err), ERROR_NOT_FOUND, "does not exist");
    FAILS(copy("a.txt", "/x", "nobody-here", &err), ERROR_NOT_FOUND, "no user");
    teardown();
}

/* What is uploaded for a COPY is as hostile as a layer. */
TEST(copies_leave_out_attributes)
{
    struct copy_wanted wanted = {.root = into, .to = "/", .src = "", .owner = "0"};
    char value[8];

    setup();
    wanted.from = TAR({"a", 'f', "x", .attribute = "user.kept"},
                      {"b", 'd', .attribute = "trusted.overlay.opaque"},
                      {"c", 'd', .attribute = "trusted.overlay.redirect"},
                      {"d", 'f', "x", .attribute = "user.overlay.metacopy"});
    OK(unpack_copy(&wanted, &err));
    CHECK_INT(getxattr(at("a"), "user.kept", value, sizeof(value)), 1);
    CHECK_INT(listxattr(at("b"), NULL, 0), 0);
    CHECK_INT(listxattr(at("c"), NULL, 0), 0);
    CHECK_INT(listxattr(at("d"), NULL, 0), 0);
    teardown();
}

TEST(copies_of_directories)
{
    setup();
    CHECK_INT(mkdir(at("app"), 0711), 0);
    CHECK_INT(mkdir(at("real"), 0755), 0);
    CHECK_INT(symlink("/real", at("app/sub")), 0);
    OK(copy("dir", "/app", "3", &err));
    check_text("app/b", "b");
    check_text("real/c", "c"); /* through the link, as into a merged /usr */
    CHECK_INT(stat_of("app").st_mode & 07777, 0711);
    CHECK_INT(stat_of("app/b").st_uid, 3);
    CHECK_INT(stat_of("app/b").st_ino, stat_of("app/h").st_ino);
    OK(copy("", "/all", "0", &err));
    check_text("all/dir/sub/c", "c");
    OK(copy(".", "/", "0", &err));
    check_text("a.txt", "a");
    FAILS(copy("dir", "/a.txt", "0", &err), ERROR_INVALID, "no directory");
    CHECK_INT(mkdir(at("b"), 0755), 0);
    FAILS(copy("dir", "/", "0", &err), ERROR_INVALID, "is a directory");
    teardown();
}

TEST(copies_with_a_mode_and_without_some)
{
    struct copy_wanted wanted = {.root = into,
                                 .to = "/m",
                                 .src = "",
                                 .mode = "0751",
                                 .exclude = {"**/c", "dir/l", "a*"},
                                 .exclude_count = 3};

    setup();
    wanted.from = context();
    OK(unpack_copy(&wanted, &err));
    CHECK_INT(stat_of("m/dir/b").st_mode & 07777, 0751);
    CHECK(!there("m/dir/sub/c") && !there("m/dir/l") && !there("m/a.txt"));
    wanted.mode = "9";
    FAILS(unpack_copy(&wanted, &err), ERROR_INVALID, "no mode");
    teardown();
}

/* A context with an archive of any kind in it. The writer of others takes texts: this one goes in by hand. */
static const char *context_with(const char *path)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    auto_buf struct buf inner = {0};
    static char outer[128];

    buf_init(&inner, 1 << 20);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &inner), 0);
    (void)snprintf(outer, sizeof(outer), "%s/outer.tar", dir);
    (void)archive_write_set_format_pax(archive);
    CHECK_INT(archive_write_open_filename(archive, outer), ARCHIVE_OK);
    archive_entry_set_pathname(entry, "inner.tar.gz");
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (int64_t)inner.len);
    CHECK_INT(archive_write_header(archive, entry), ARCHIVE_OK);
    CHECK_INT(archive_write_data(archive, inner.p, inner.len), inner.len);
    add(archive, &(struct made){"plain.txt", 'f', "no archive", .uid = 501});
    archive_entry_free(entry);
    (void)archive_write_free(archive);
    return outer;
}

TEST(archives_that_are_added)
{
    static const struct made made[] = {{"i/n", 'f', "inner", .uid = 9}, {"top", 'f', "t"}, {0}};
    static const char *const filters[] = {NULL, "gzip", "zstd", "xz", "bzip2"};
    struct copy_wanted wanted = {.root = into, .to = "/x/", .src = "", .extract = true};
    char path[96];

    setup();
    (void)snprintf(path, sizeof(path), "%s/inner", dir);
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        write_tar(path, made, filters[i]);
        wanted.from = context_with(path);
        OK(unpack_copy(&wanted, &err));
        check_text("x/i/n", "inner");
        CHECK_INT(stat_of("x/i/n").st_uid, 9);
        check_text("x/plain.txt", "no archive");
        CHECK_INT(stat_of("x/plain.txt").st_uid, 0);
        CHECK(!there("x/inner.tar.gz"));
        CHECK_INT(path_remove_tree(AT_FDCWD, at("x")), 0);
    }
    teardown();
}

/* ---- pack and provision ---- */

TEST(what_is_packed_comes_out_again)
{
    static const char *const paths[] = {"/d", "/li*"};
    struct pack_wanted wanted = {.root = into, .paths = paths, .count = 2};
    const char *file;
    char out[128], again[128];

    setup();
    OK(apply(TAR({"d/f", 'f', "text", .mode = 04711, .uid = 3, .attribute = "user.x"},
                 {"d/h", 'h', "d/f"}, {"d/s", 'l', "f"}, {"d/p", 'p'},
                 {"d/hole", 'f', "end", .sparse = 10 << 20}, {"link", 'l', "d/f"}, {"no", 'f', ""}),
             NULL, &err));
    for (int gzip = 0; gzip < 2; gzip++) {
        (void)snprintf(out, sizeof(out), "%s/packed-%d", dir, gzip);
        (void)snprintf(again, sizeof(again), "%s/again-%d", dir, gzip);
        wanted.fd = open(out, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        wanted.gzip = gzip;
        OK(unpack_pack(&wanted, &err));
        (void)close(wanted.fd);
        CHECK_INT(mkdir(again, 0755), 0);
        file = out;
        OK(unpack_apply(again, &file, 1, 0, &err));
    }
    (void)snprintf(into, sizeof(into), "%s", again);
    check_text("d/f", "text");
    CHECK_INT(stat_of("d/f").st_mode & 07777, 04711);
    CHECK_INT(stat_of("d/f").st_uid, 3);
    CHECK_INT(stat_of("d/f").st_ino, stat_of("d/h").st_ino);
    CHECK(getxattr(at("d/f"), "user.x", NULL, 0) == 1);
    CHECK_INT(stat_of("d/hole").st_size, 10 << 20);
    CHECK(stat_of("d/hole").st_blocks < 1024);
    check_text("link", "text"); /* what was named is what it leads to */
    CHECK(!there("no"));
    teardown();
}

TEST(provisioning)
{
    setup();
    OK(apply(TAR({"etc/passwd", 'f', "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh"},
                 {"etc/group", 'f', "root:x:0:\napp:x:1000:\n"}, {"proc", 'l', "/nowhere"},
                 {"etc/shadow", 'f', "root:*:1::::::\n", .mode = 0604, .uid = 42},
                 {"bin/sh", 'f', "#!", .mode = 0755}, {"usr/bin/sudo", 'f', "s"},
                 {"etc/sudoers.d/", 'd'}),
             NULL, &err));
    OK(unpack_provision(into, NULL, &err));
    check_text("etc/passwd", "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"
                             "user:x:1001:1001::/home/user:/bin/bash\n");
    check_text("etc/group", "root:x:0:\napp:x:1000:\nuser:x:1001:\n");
    check_text("etc/shadow", "root:*:1::::::\nuser::19000:0:99999:7:::\n");
    CHECK_INT(stat_of("etc/shadow").st_uid, 42);
    CHECK_INT(stat_of("etc/shadow").st_mode & 07777, 0604);
    CHECK_INT(stat_of("home/user").st_uid, 1001);
    CHECK_INT(stat_of("etc/sudoers.d/user").st_mode & 07777, 0440);
    check_text("bin/bash", "#!/bin/sh\nexec /bin/sh \"$@\"\n");
    CHECK(S_ISDIR(stat_of("proc").st_mode));
    CHECK_INT(stat_of("tmp").st_mode & 07777, 01777);
    OK(unpack_provision(into, NULL, &err)); /* changes nothing more */
    check_text("etc/group", "root:x:0:\napp:x:1000:\nuser:x:1001:\n");
    teardown();
}

TEST(provisioning_of_a_root_with_traps)
{
    setup();
    OK(apply(TAR({"etc", 'l', outside}, {"home", 'l', "../outside"}, {"tmp", 'l', outside},
                 {"bin", 'l', outside}),
             NULL, &err));
    (void)unpack_provision(into, NULL, &(struct error){0});
    check_outside();
    teardown();
}
