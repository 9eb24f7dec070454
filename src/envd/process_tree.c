/* How it works: /proc is read once per round into (pid, parent, session); a process belongs to the
 * tree when it is in the root's session or when its chain of parents leads to the root. The root
 * is stopped first, so that it cannot start more or end by itself because its children do, and dies
 * last: until then those who left its session are found by their parent. Rounds repeat while they
 * find somebody alive, because a tree may grow while it is being killed. */
#include "envd/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

enum {
    ROUNDS_MAX = 8,
    PIDS_MAX = 65536,
};

struct entry {
    pid_t pid, parent, session;
    bool ours, dead;
};

struct snapshot {
    struct entry *items;
    size_t count, cap;
};

/* "pid (name) state ppid pgrp session ...": the name may hold anything, also blanks and ')'. */
static bool parse_stat(struct str text, struct entry *out)
{
    int64_t values[3] = {0};
    struct str state;

    while (text.len > 0 && text.p[text.len - 1] != ')')
        text.len--;
    if (text.len == 0)
        return false;
    text = str_n(text.p + text.len, strlen(text.p + text.len));
    (void)str_split(&text, ' ');
    state = str_split(&text, ' ');
    out->dead = str_is(state, "Z") || str_is(state, "X");
    for (size_t i = 0; i < 3; i++)
        if (!text.p || !str_to_i64(str_split(&text, ' '), &values[i]))
            return false;
    out->parent = (pid_t)values[0];
    out->session = (pid_t)values[2];
    return true;
}

static void add(struct snapshot *all, int proc_fd, pid_t pid)
{
    struct entry entry = {.pid = pid};
    auto_close int fd = -1;
    char path[32], text[512];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%d/stat", (int)pid);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : fd_read_full(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    if (!parse_stat(str_n(text, (size_t)n), &entry))
        return;
    if (all->count == all->cap) {
        all->cap = all->cap ? all->cap * 2 : 64;
        all->items = xrealloc(all->items, all->cap * sizeof(*all->items));
    }
    all->items[all->count++] = entry;
}

static void take_snapshot(struct snapshot *all)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    all->count = 0;
    if (!proc)
        return;
    while ((entry = readdir(proc)) && all->count < PIDS_MAX) {
        int64_t pid;

        if (str_to_i64(str_of(entry->d_name), &pid) && pid > 1)
            add(all, dirfd(proc), (pid_t)pid);
    }
    (void)closedir(proc);
}

/* /proc lists pids in ascending order. */
static int compare_pid(const void *key, const void *item)
{
    pid_t a = *(const pid_t *)key, b = ((const struct entry *)item)->pid;

    return a < b ? -1 : a > b;
}

static bool parent_is_ours(const struct snapshot *all, pid_t parent, pid_t root)
{
    const struct entry *found;

    if (parent == root || all->count == 0)
        return parent == root;
    found = bsearch(&parent, all->items, all->count, sizeof(*all->items), compare_pid);
    return found && found->ours;
}

/* Pids mostly grow from parent to child, so few passes reach everybody. */
static void mark(struct snapshot *all, pid_t root)
{
    bool changed = true;

    for (int pass = 0; changed && pass < 16; pass++) {
        changed = false;
        for (size_t i = 0; i < all->count; i++) {
            struct entry *entry = &all->items[i];

            if (entry->ours || entry->pid == root)
                continue;
            if (entry->session == root || parent_is_ours(all, entry->parent, root))
                entry->ours = changed = true;
        }
    }
}

/* How many that were not dead yet got the signal. */
static size_t kill_marked(const struct snapshot *all)
{
    size_t alive = 0;

    for (size_t i = 0; i < all->count; i++) {
        if (!all->items[i].ours || all->items[i].dead)
            continue;
        (void)kill(all->items[i].pid, SIGKILL);
        alive++;
    }
    return alive;
}

void process_tree_kill(pid_t root)
{
    struct snapshot all = {0};

    (void)kill(root, SIGSTOP);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        take_snapshot(&all);
        mark(&all, root);
        if (kill_marked(&all) == 0)
            break;
    }
    (void)kill(-root, SIGKILL);
    (void)kill(root, SIGKILL);
    free(all.items);
}

void process_tree_kill_below(pid_t root)
{
    struct snapshot all = {0};

    for (int round = 0; round < ROUNDS_MAX; round++) {
        take_snapshot(&all);
        mark(&all, root);
        if (kill_marked(&all) == 0)
            break;
    }
    free(all.items);
}
