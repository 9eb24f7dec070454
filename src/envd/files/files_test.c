#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "envd/files/entry.h"
#include "envd/files/upload_file.h"

static const struct user tester = {.name = "tester", .home = "/tmp", .uid = 1234, .gid = 4321};

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void make_dir(void)
{
    (void)snprintf(dir, sizeof(dir), "/tmp/files-test-XXXXXX");
    CHECK(mkdtemp(dir));
    test_needs_root();
}

static void check_content(const char *name, const char *want)
{
    auto_buf struct buf content = {0};

    buf_init(&content, 1000);
    CHECK_INT(fd_read_file_at(AT_FDCWD, in_dir(name), &content), 0);
    CHECK_STR(buf_str(&content), want);
}

static int upload(const char *name, const char *text, struct error *err)
{
    struct upload_file file;
    struct http_headers none = {0};

    if (upload_file_open(&file, in_dir(name), &tester, err) != 0)
        return -1;
    CHECK_INT(upload_file_write(&file, str_of(text), err), 0);
    return upload_file_commit(&file, &none, err);
}

TEST(permissions_text)
{
    static const struct {
        mode_t mode;
        const char *text;
    } cases[] = {
        {S_IFREG | 0644, "-rw-r--r--"},
        {S_IFDIR | 0755, "drwxr-xr-x"},
        {S_IFDIR | S_ISVTX | 0777, "dtrwxrwxrwx"},
        {S_IFLNK | 0777, "Lrwxrwxrwx"},
        {S_IFCHR | 0666, "Dcrw-rw-rw-"},
        {S_IFREG | S_ISUID | 0755, "urwxr-xr-x"},
        {S_IFIFO | 0600, "prw-------"},
        {S_IFSOCK, "S---------"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];

        entry_permissions(cases[i].mode, text);
        CHECK_STR(str_of(text), cases[i].text);
    }
}

TEST(upload_makes_parents_and_file)
{
    struct error err = {0};
    struct stat st;

    make_dir();
    CHECK_INT(upload("a/b/c.txt", "hello", &err), 0);
    check_content("a/b/c.txt", "hello");
    CHECK_INT(stat(in_dir("a/b"), &st), 0);
    CHECK_INT(st.st_uid, 1234);
    CHECK_INT(st.st_mode & 0777, 0755);
    CHECK_INT(stat(in_dir("a/b/c.txt"), &st), 0);
    CHECK_INT(st.st_gid, 4321);
    CHECK_INT(st.st_mode & 0777, 0644);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(upload_replaces_through_links_and_keeps_mode)
{
    struct error err = {0};
    struct stat st;

    make_dir();
    CHECK_INT(upload("real", "old", &err), 0);
    CHECK_INT(chmod(in_dir("real"), 0750), 0);
    CHECK_INT(symlink("real", in_dir("link")), 0);
    CHECK_INT(upload("link", "new", &err), 0);
    check_content("real", "new");
    CHECK_INT(lstat(in_dir("link"), &st), 0);
    CHECK(S_ISLNK(st.st_mode));
    CHECK_INT(stat(in_dir("real"), &st), 0);
    CHECK_INT(st.st_mode & 0777, 0750);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(upload_refuses_directories)
{
    struct error err = {0};

    make_dir();
    CHECK_INT(mkdir(in_dir("d"), 0700), 0);
    CHECK_INT(upload("d", "x", &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(upload("f", "x", &err), 0);
    CHECK_INT(upload("f/below", "x", &err), -1);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(upload_abort_leaves_nothing)
{
    struct upload_file file;
    struct error err = {0};

    make_dir();
    CHECK_INT(upload_file_open(&file, in_dir("x"), &tester, &err), 0);
    CHECK_INT(upload_file_write(&file, STR("half"), &err), 0);
    upload_file_abort(&file);
    CHECK_INT(rmdir(dir), 0);
}

TEST(entry_of_link)
{
    struct user_names names = {0};
    auto_buf struct buf out = {0};
    struct error err = {0};
    char path[PATH_MAX];

    make_dir();
    CHECK_INT(upload("target", "abc", &err), 0);
    CHECK_INT(symlink("target", in_dir("link")), 0);
    (void)str_copy(str_of(in_dir("link")), path, sizeof(path));
    buf_init(&out, 4096);
    CHECK_INT(entry_add(&out, path, STR("/shown"), &names, NULL, &err), 0);
    CHECK(strstr(out.p, "\"name\":\"link\",\"path\":\"/shown\",\"type\":\"FILE_TYPE_FILE\","
                        "\"mode\":420,\"symlinkTarget\":\""));
    CHECK(strstr(out.p, "\"permissions\":\"Lrwxrwxrwx\""));
    CHECK_INT(entry_add(&out, in_dir("none"), STR("/n"), &names, NULL, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}
