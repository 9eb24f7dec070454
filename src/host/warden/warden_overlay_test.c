/* Roots of boxes as older kernels want them, from layers that are attached somewhere: this kernel may not
 * need it, but can do it as well. */
#include "host/warden/test/warden_rig.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

static size_t mount_count(void)
{
    auto_buf struct buf text = {0};
    size_t count = 0;

    buf_init(&text, 1 << 20);
    CHECK(fd_read_file_at(AT_FDCWD, "/proc/thread-self/mountinfo", &text) == 0);
    for (size_t i = 0; i < text.len; i++)
        count += text.p[i] == '\n';
    return count;
}

TEST_TIMEOUT(a_root_of_attached_layers_can_be_written_to, 60)
{
    struct box_spec spec;
    struct box_info info;
    char before[256] = "", after[256] = "";
    size_t mounts;

    rig_open();
    /* As systemd has it: what is mounted on a copy of a mount would appear on the mount itself. */
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) == 0);
    rig_restart();
    rig_warden.boxes.attach_layers = true;
    CHECK(getcwd(before, sizeof(before)));
    mounts = mount_count();
    for (int i = 0; i < 3; i++) {
        spec = rig_spec();
        rig_start(&spec, &info);
        RIG_CHECK_ASK("ok lower", spec.id, "get /lower/file");
        RIG_CHECK_ASK("ok", spec.id, "put /lower/file changed");
        RIG_CHECK_ASK("ok", spec.id, "put /new one");
        RIG_CHECK_ASK("ok changed", spec.id, "get /lower/file");
        /* Nothing of it is to be seen here: neither mounts, nor another root or working directory. */
        CHECK_INT(mount_count(), mounts);
        CHECK(getcwd(after, sizeof(after)));
        CHECK_STR(str_of(after), before);
        CHECK(access(rig_data_dir, F_OK) == 0);
        rig_kill(spec.id);
    }
    rig_check_nothing_left();
    rig_close();
}

static void make_layer(int number, char name[LAYER_NAME_SIZE])
{
    char path[128];
    auto_close int fd = -1;

    (void)snprintf(name, LAYER_NAME_SIZE, "more-%d", number);
    (void)snprintf(path, sizeof(path), "layers/%s", name);
    fd = open(rig_data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0 && mkdirat(fd, path, 0755) == 0);
    (void)snprintf(path, sizeof(path), "layers/%s/of-%d", name, number);
    CHECK(mkdirat(fd, path, 0755) == 0);
}

TEST_TIMEOUT(as_many_layers_as_there_may_be_can_be_attached, 60)
{
    struct box_spec spec;
    struct box_info info;

    rig_open();
    spec = rig_spec();
    while (spec.layer_count < BOX_LAYERS_MAX) {
        make_layer((int)spec.layer_count, spec.layers[spec.layer_count]);
        spec.layer_count++;
    }
    /* Descriptors of four digits, as a warden with many boxes has them. */
    for (int fd = open("/", O_PATH | O_CLOEXEC); fd < 1000;)
        CHECK((fd = dup(fd)) >= 0);
    /* The way of this kernel, then the one that all have. */
    for (int attached = rig_warden.boxes.attach_layers; attached < 2; attached++) {
        rig_warden.boxes.attach_layers = attached;
        id_make(spec.id);
        rig_start(&spec, &info);
        RIG_CHECK_ASK("ok", spec.id, "put /of-1/file one");
        RIG_CHECK_ASK("ok", spec.id, "put /of-31/file one");
        RIG_CHECK_ASK("ok lower", spec.id, "get /lower/file");
        rig_kill(spec.id);
    }
    rig_check_nothing_left();
    rig_close();
}

/* A layer whose ids cannot be mapped (here: one of proc) is refused at start, with what is needed. */
TEST_TIMEOUT(a_base_layer_that_cannot_be_mapped_is_refused, 60)
{
    struct error err;
    char path[128];

    rig_open();
    (void)snprintf(path, sizeof(path), "%s/layers", rig_data_dir);
    CHECK_INT(warden_probe(path, &err), 0);
    CHECK_INT(warden_probe("/proc/self", &err), -1);
    CHECK(strstr(err.message, "Linux 5.19 is the least") && strstr(err.message, "map the ids"));
    rig_check_nothing_left();
    rig_close();
}
