/* A box that is killed while it looks for the files that envd serves: the wait for an answer cannot be killed, so something
 * else has to end it. The process that answers is held between a request and its reply, and then one or both are killed. */
#include "host/warden/test/warden_rig.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/native/box_files.h"

/* Shared with the box. */
static struct {
    int requests; /* that were read */
    bool held, go;
} * shared;

/* In the box. The first request is FUSE_INIT, for which nobody waits; the second is a lookup of the first process. */
static void hold_reply(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    if (++shared->requests != 2)
        return;
    __atomic_store_n(&shared->held, true, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
        (void)syscall(SYS_nanosleep, &moment, NULL);
}

static void share(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
}

static bool is_held(const char *id)
{
    char path[256];
    unsigned slot;
    int pid = 0;
    FILE *record;

    (void)snprintf(path, sizeof(path), "%s/run/%s.box", rig_data_dir, id);
    record = fopen(path, "re");
    if (!record)
        return false;
    if (fscanf(record, "%u %*s %d", &slot, &pid) != 2)
        pid = 0;
    (void)fclose(record);
    return pid && __atomic_load_n(&shared->held, __ATOMIC_ACQUIRE);
}

/* A warden in a process of its own that starts the box; returns when the box waits for the reply. */
static pid_t begin_start(const struct box_spec *spec)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        struct box_info info;
        struct error err;

        box_files_before_reply = hold_reply;
        _exit(box_start(&rig_warden.boxes, spec, &info, &err) < 0 ? 1 : 0);
    }
    WAIT_FOR(is_held(spec->id));
    return pid;
}

static void count_task(pid_t task, void *arg)
{
    (void)task;
    ++*(int *)arg;
}

static void kill_task(pid_t task, void *arg)
{
    (void)arg;
    (void)kill(task, SIGKILL);
}

static int count_tasks(const char *id)
{
    int count = 0;

    box_cgroup_each_task(rig_warden.boxes.cgroups, id, count_task, &count);
    return count;
}

static void check_gone(const struct box_spec *spec)
{
    rig_kill(spec->id);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    rig_check_nothing_left();
    rig_close();
    (void)munmap(shared, sizeof(*shared));
}

TEST_TIMEOUT(a_box_whose_warden_is_killed_while_it_waits_for_a_file_ends, 60)
{
    struct box_spec spec;
    pid_t warden;

    share();
    rig_open();
    spec = rig_spec();
    warden = begin_start(&spec);
    CHECK(kill(warden, SIGKILL) == 0);
    CHECK(waitpid(warden, NULL, 0) == warden);
    rig_restart();
    /* Its first process was killed and still waits: it is not running. */
    CHECK(count_tasks(spec.id) > 0);
    CHECK(boxes_in_state(&rig_warden.boxes, spec.id, BOX_DEAD));
    __atomic_store_n(&shared->go, true, __ATOMIC_RELEASE);
    WAIT_FOR(count_tasks(spec.id) == 0);
    check_gone(&spec);
}

TEST_TIMEOUT(a_box_whose_processes_are_all_killed_while_it_waits_for_a_file_ends, 60)
{
    struct box_spec spec;
    pid_t warden;
    int status;

    share();
    rig_open();
    spec = rig_spec();
    warden = begin_start(&spec);
    CHECK(kill(warden, SIGSTOP) == 0); /* or it would end the box's connections */
    box_cgroup_each_task(rig_warden.boxes.cgroups, spec.id, kill_task, NULL);
    WAIT_FOR(count_tasks(spec.id) == 0);
    CHECK(kill(warden, SIGCONT) == 0);
    CHECK(waitpid(warden, &status, 0) == warden && WIFEXITED(status) && WEXITSTATUS(status) == 1);
    check_gone(&spec);
}
