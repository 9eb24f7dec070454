#include "envd/core/ca_bundle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"

#define CERT(name) "-----BEGIN CERTIFICATE-----\n" name "\n-----END CERTIFICATE-----"

static void check_file(const char *path, const char *want)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 10000);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &text), 0);
    CHECK_STR(buf_str(&text), want);
}

TEST(ca_bundle)
{
    char dir[] = "/tmp/ca-test-XXXXXX", bundle[64], extra[64];
    struct error err = {0};
    struct stat st;

    test_needs_root();
    CHECK(mkdtemp(dir));
    (void)snprintf(bundle, sizeof(bundle), "%s/ca.crt", dir);
    (void)snprintf(extra, sizeof(extra), "%s/more/e2b.crt", dir);
    close_fd(&(int){open(bundle, O_CREAT | O_WRONLY | O_CLOEXEC, 0640)});
    CHECK_INT(truncate(bundle, 0), 0);
    CHECK_INT(ca_bundle_install(bundle, extra, STR(CERT("one")), STR_NONE, &err), 0);
    check_file(bundle, CERT("one") "\n");
    check_file(extra, CERT("one") "\n");
    CHECK_INT(stat(bundle, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0640);
    /* The same again, with another line end: nothing. */
    CHECK_INT(ca_bundle_install(bundle, extra, STR(CERT("one") "\r\n\n"), STR_NONE, &err), 0);
    check_file(bundle, CERT("one") "\n");
    /* Another one beside it, which then gives way to a third. */
    CHECK_INT(ca_bundle_install(bundle, extra, STR(CERT("two")), STR_NONE, &err), 0);
    CHECK_INT(ca_bundle_install(bundle, extra, STR(CERT("three")), STR(CERT("two") "\n"), &err), 0);
    check_file(bundle, CERT("one") "\n" CERT("three") "\n");
    check_file(extra, CERT("three") "\n");
    CHECK_INT(ca_bundle_install(bundle, extra, STR("junk"), STR_NONE, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(unlink(bundle), 0);
    CHECK_INT(ca_bundle_install(bundle, extra, STR(CERT("four")), STR_NONE, &err), 0);
    check_file(bundle, CERT("four") "\n");
    /* By its hash, once. */
    ca_bundle_link(dir, STR("00abcdef"), extra);
    ca_bundle_link(dir, STR("00abcdef"), extra);
    ca_bundle_link(dir, STR("../evil"), extra);
    (void)snprintf(bundle, sizeof(bundle), "%s/00abcdef.0", dir);
    check_file(bundle, CERT("four") "\n");
    (void)snprintf(bundle, sizeof(bundle), "%s/ca.crt", dir);
    CHECK_INT(unlink(bundle), 0);
    CHECK_INT(mkfifo(bundle, 0600), 0);
    CHECK_INT(ca_bundle_install(bundle, extra, STR(CERT("five")), STR_NONE, &err), -1);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}
