/* Commands in the foreground that run now, by the ids that events and streams tell.
 *
 * An entry lives on the stack of the thread that reads the command's output. Whoever sends input or a
 * signal holds it for that time; the reader waits for them before the process goes. To stop one never
 * blocks: its reader is woken and does the rest. */
#include "runtime/run/running.h"

#include <signal.h>

#include "base/alloc.h"
#include "base/map.h"
#include "runtime/core/runtime_parts.h"

enum { INPUT_MAX = 1024 * 1024 };

struct runtime_runs {
    pthread_mutex_t lock; /* guards list and its entries' users, stopped */
    pthread_cond_t changed;
    struct list list;
    struct map bash; /* provider and image -> "y" or "n" */
};

void runtime_runs_open(struct runtime *runtime)
{
    struct runtime_runs *runs = xcalloc(1, sizeof(*runs));

    (void)pthread_mutex_init(&runs->lock, NULL);
    (void)pthread_cond_init(&runs->changed, NULL);
    list_init(&runs->list);
    map_init(&runs->bash);
    runtime->runs = runs;
}

void runtime_runs_close(struct runtime *runtime)
{
    if (!runtime->runs)
        return;
    (void)pthread_cond_destroy(&runtime->runs->changed);
    (void)pthread_mutex_destroy(&runtime->runs->lock);
    map_done(&runtime->runs->bash);
    free(runtime->runs);
    runtime->runs = NULL;
}

void runtime_running_add(struct runtime *runtime, struct runtime_running *running,
                         struct provider_process *process)
{
    struct runtime_runs *runs = runtime->runs;

    running->process = process;
    (void)pthread_mutex_lock(&runs->lock);
    list_push_back(&runs->list, &running->link);
    (void)pthread_mutex_unlock(&runs->lock);
}

bool runtime_running_stopped(struct runtime *runtime, struct runtime_running *running)
{
    bool stopped;

    (void)pthread_mutex_lock(&runtime->runs->lock);
    stopped = running->stopped;
    (void)pthread_mutex_unlock(&runtime->runs->lock);
    return stopped;
}

void runtime_running_remove(struct runtime *runtime, struct runtime_running *running)
{
    struct runtime_runs *runs = runtime->runs;

    (void)pthread_mutex_lock(&runs->lock);
    list_remove(&running->link);
    while (running->users)
        (void)pthread_cond_wait(&runs->changed, &runs->lock);
    (void)pthread_mutex_unlock(&runs->lock);
}

/* Under the lock. */
static struct runtime_running *find(struct runtime_runs *runs, struct str id)
{
    struct list *node;

    list_for_each (node, &runs->list) {
        struct runtime_running *running = container_of(node, struct runtime_running, link);

        if (str_is(id, running->id))
            return running;
    }
    return NULL;
}

static struct runtime_running *acquire(struct runtime *runtime, const struct runtime_caller *caller,
                                       struct str sandbox_id, struct str id, struct error *err)
{
    struct runtime_runs *runs = runtime->runs;
    struct runtime_running *running;

    (void)pthread_mutex_lock(&runs->lock);
    running = find(runs, id);
    if (running && (!str_eq(running->team_id, caller->team_id) ||
                    (sandbox_id.p && !str_eq(running->sandbox_id, sandbox_id))))
        running = NULL;
    if (!running) {
        (void)error_set(err, ERROR_NOT_FOUND, "no command '%.*s' runs: it has ended, or never was",
                        STR_ARG(id));
    } else if (caller->agent_id.p && !str_eq(caller->agent_id, running->agent_id)) {
        (void)error_set(err, ERROR_FORBIDDEN, "command '%.*s' belongs to another agent than '%.*s'",
                        STR_ARG(id), STR_ARG(caller->agent_id));
        running = NULL;
    } else {
        running->users++;
    }
    (void)pthread_mutex_unlock(&runs->lock);
    return running;
}

static void release(struct runtime *runtime, struct runtime_running *running)
{
    (void)pthread_mutex_lock(&runtime->runs->lock);
    if (--running->users == 0)
        (void)pthread_cond_broadcast(&runtime->runs->changed);
    (void)pthread_mutex_unlock(&runtime->runs->lock);
}

int runtime_exec_input(struct runtime *runtime, const struct runtime_caller *caller,
                       struct str sandbox_id, struct str id, struct str data, bool close,
                       struct error *err)
{
    struct runtime_running *running;
    int r = 0;

    if (data.len > INPUT_MAX)
        return error_set(err, ERROR_LIMIT, "input is at most %d bytes at once", INPUT_MAX);
    running = acquire(runtime, caller, sandbox_id, id, err);
    if (!running)
        return -1;
    if (!running->open_stdin)
        r = error_set(err, ERROR_CONFLICT,
                      "command '%.*s' was started without standard input: start it with"
                      " \"stdin\": true",
                      STR_ARG(id));
    if (r == 0 && data.len)
        r = provider_process_input(running->process, data, err);
    if (r == 0 && close)
        r = provider_process_close_stdin(running->process, err);
    release(runtime, running);
    return r;
}

int runtime_exec_signal(struct runtime *runtime, const struct runtime_caller *caller,
                        struct str sandbox_id, struct str id, int signal, struct error *err)
{
    struct runtime_running *running = acquire(runtime, caller, sandbox_id, id, err);
    int r;

    if (!running)
        return -1;
    r = provider_process_signal(running->process, signal, err);
    release(runtime, running);
    return r;
}

void runtime_exec_stop(struct runtime *runtime, struct str id)
{
    struct runtime_running *running;

    (void)pthread_mutex_lock(&runtime->runs->lock);
    running = find(runtime->runs, id);
    if (running && !running->stopped) {
        running->stopped = true;
        provider_process_cancel(running->process);
    }
    (void)pthread_mutex_unlock(&runtime->runs->lock);
}

/* ---- which images have a bash ---- */

static char yes[] = "y", no[] = "n";
enum { IMAGES_MAX = 4096 };

static struct str image_name(struct arena *arena, struct str provider, struct str image)
{
    return str_of(arena_printf(arena, "%.*s\n%.*s", STR_ARG(provider), STR_ARG(image)));
}

int runtime_runs_bash(struct runtime *runtime, struct str provider, struct str image)
{
    struct runtime_runs *all = runtime->runs;
    auto_arena struct arena arena = {0};
    struct str name = image_name(&arena, provider, image);
    const char *known;

    (void)pthread_mutex_lock(&all->lock);
    known = map_get(&all->bash, name);
    (void)pthread_mutex_unlock(&all->lock);
    return known ? known == yes : -1;
}

void runtime_runs_set_bash(struct runtime *runtime, struct str provider, struct str image,
                           bool bash)
{
    struct runtime_runs *all = runtime->runs;
    auto_arena struct arena arena = {0};
    struct str name = image_name(&arena, provider, image);

    (void)pthread_mutex_lock(&all->lock);
    if (all->bash.count < IMAGES_MAX)
        (void)map_put(&all->bash, name, bash ? yes : no);
    (void)pthread_mutex_unlock(&all->lock);
}
