/* How it works: /proc is read once per round. A process belongs to the tree when it bears the tree's
 * mark, when it is in the root's Unix session, or when its chain of parents leads to the root. Who bears the
 * mark gets the signal as soon as it is seen: /proc is read in the order of the pids, so that most of
 * what a fork bomb starts meanwhile comes later in the same round. The root is stopped first, so that it
 * cannot start more or end by itself because its children do, and dies last: until then those who left
 * its session are found by their parent. Rounds repeat while they find somebody new, because a tree may
 * grow while it is being killed.
 *
 * The mark is a limit that Linux has not enforced since 2.4 (RLIMIT_LOCKS) and shows in
 * /proc/PID/limits: children inherit it through fork, exec, setsid and changes of user, so that it stays
 * on those whose parents are gone. Nobody needs to be told, and it costs a command one system call. A
 * program that lowers that limit of its own takes itself out of the tree. */
#include "envd/process/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

enum {
    ROUNDS_MAX = 32,
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

struct tree {
    pid_t root;
    uint64_t mark; /* 0: none */
    struct snapshot now, before;
};

uint64_t process_tree_mark(void)
{
    static uint64_t next;

    /* By chance, because envds outside of sandboxes share a pid namespace. Far from any limit that
     * somebody would set, and never "unlimited". */
    if (next == 0 && getrandom(&next, sizeof(next), GRND_NONBLOCK) == (ssize_t)sizeof(next))
        next = next >> 2 | UINT64_C(1) << 61;
    return next ? next++ : 0;
}

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

static ssize_t read_of(int proc_fd, pid_t pid, const char *name, char *text, size_t size)
{
    auto_close int fd = -1;
    char path[32];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : fd_read_full(fd, text, size - 1);
    if (n > 0)
        text[n] = '\0';
    return n;
}

/* "Max file locks            SOFT                 HARD                 locks" */
static bool bears_mark(int proc_fd, pid_t pid, uint64_t mark)
{
    static const char name[] = "Max file locks";
    char text[2048], want[24];
    const char *line;
    int len;

    if (mark == 0 || read_of(proc_fd, pid, "limits", text, sizeof(text)) <= 0 ||
        !(line = strstr(text, name)))
        return false;
    line += sizeof(name) - 1;
    line += strspn(line, " ");
    len = snprintf(want, sizeof(want), "%llu ", (unsigned long long)mark);
    return strncmp(line, want, (size_t)len) == 0;
}

static void add(struct tree *tree, int proc_fd, pid_t pid)
{
    struct snapshot *all = &tree->now;
    struct entry entry = {.pid = pid};
    char text[512];
    ssize_t n;

    if (pid != tree->root && bears_mark(proc_fd, pid, tree->mark)) {
        entry.ours = true;
        (void)kill(pid, SIGKILL);
    }
    n = read_of(proc_fd, pid, "stat", text, sizeof(text));
    if (n <= 0 || !parse_stat(str_n(text, (size_t)n), &entry))
        return;
    if (all->count == all->cap) {
        all->cap = all->cap ? all->cap * 2 : 64;
        all->items = xrealloc(all->items, all->cap * sizeof(*all->items));
    }
    all->items[all->count++] = entry;
}

static void take_snapshot(struct tree *tree)
{
    struct snapshot old = tree->before;
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    tree->before = tree->now;
    tree->now = old;
    tree->now.count = 0;
    if (!proc)
        return;
    while ((entry = readdir(proc)) && tree->now.count < PIDS_MAX) {
        int64_t pid;

        if (str_to_i64(str_of(entry->d_name), &pid) && pid > 1)
            add(tree, dirfd(proc), (pid_t)pid);
    }
    (void)closedir(proc);
}

/* /proc lists pids in ascending order. */
static int compare_pid(const void *key, const void *item)
{
    pid_t a = *(const pid_t *)key, b = ((const struct entry *)item)->pid;

    return a < b ? -1 : a > b;
}

static bool is_ours(const struct snapshot *all, pid_t pid)
{
    const struct entry *found = NULL;

    if (all->count > 0)
        found = bsearch(&pid, all->items, all->count, sizeof(*all->items), compare_pid);
    return found && found->ours;
}

/* Pids mostly grow from parent to child, so few passes reach everybody. */
static void find_rest(struct tree *tree)
{
    struct snapshot *all = &tree->now;
    bool changed = true;

    for (int pass = 0; changed && pass < 16; pass++) {
        changed = false;
        for (size_t i = 0; i < all->count; i++) {
            struct entry *entry = &all->items[i];

            if (entry->ours || entry->pid == tree->root)
                continue;
            if (entry->session == tree->root || entry->parent == tree->root ||
                is_ours(all, entry->parent))
                entry->ours = changed = true;
        }
    }
}

/* Whether somebody got the signal who had not got it a round before. */
static bool kill_found(const struct tree *tree)
{
    bool any_new = false;

    for (size_t i = 0; i < tree->now.count; i++) {
        const struct entry *entry = &tree->now.items[i];

        if (!entry->ours || entry->dead)
            continue;
        (void)kill(entry->pid, SIGKILL);
        any_new |= !is_ours(&tree->before, entry->pid);
    }
    return any_new;
}

static void kill_below(pid_t root, uint64_t mark)
{
    struct tree tree = {.root = root, .mark = mark};

    for (int round = 0; round < ROUNDS_MAX; round++) {
        take_snapshot(&tree);
        find_rest(&tree);
        if (!kill_found(&tree))
            break;
    }
    free(tree.now.items);
    free(tree.before.items);
}

void process_tree_kill(pid_t root, uint64_t mark)
{
    (void)kill(root, SIGSTOP);
    kill_below(root, mark);
    (void)kill(-root, SIGKILL);
    (void)kill(root, SIGKILL);
}

void process_tree_kill_below(pid_t root)
{
    kill_below(root, 0);
}
