#include "envd/core/run_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"

static void check_file(const char *path, const char *content, mode_t mode)
{
    auto_buf struct buf text = {0};
    struct stat st;

    buf_init(&text, 1000);
    CHECK_INT(lstat(path, &st), 0);
    CHECK_INT(st.st_mode, S_IFREG | mode);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &text), 0);
    CHECK_STR(buf_str(&text), content);
}

TEST(run_files)
{
    char top[] = "/tmp/run-files-XXXXXX";
    char dir[64], path[80];
    struct error err = {0};

    CHECK(mkdtemp(top) != NULL);
    (void)snprintf(dir, sizeof(dir), "%s/e2b", top);
    (void)snprintf(path, sizeof(path), "%s/.ID", dir);
    CHECK_INT(run_files_write(dir, ".ID", STR("one"), 0444, &err), 0);
    check_file(path, "one", 0444);
    CHECK_INT(run_files_write(dir, ".ID", STR("2"), 0644, &err), 0);
    check_file(path, "2", 0644);
    /* Neither waited for nor followed. */
    CHECK_INT(unlink(path), 0);
    CHECK_INT(mkfifo(path, 0666), 0);
    CHECK_INT(run_files_write(dir, ".ID", STR("three"), 0644, &err), 0);
    check_file(path, "three", 0644);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(symlink("../victim", path), 0);
    CHECK_INT(run_files_write(dir, ".ID", STR("four"), 0644, &err), 0);
    check_file(path, "four", 0644);
    (void)snprintf(path, sizeof(path), "%s/victim", top);
    CHECK(access(path, F_OK) != 0);
    (void)snprintf(path, sizeof(path), "%s/link", top);
    CHECK_INT(symlink("e2b", path), 0);
    CHECK_INT(run_files_write(path, ".ID", STR("five"), 0644, &err), -1);
    CHECK_INT(path_remove_tree(AT_FDCWD, top), 0);
}
