/* Commands in the foreground that run now, by the ids that events and streams tell.
 *
 * An entry lives on the stack of the thread that reads the command's output. Whoever sends input or a
 * signal holds it for that time; the reader waits for them before the process goes. To stop one never
 * blocks: its reader is woken and does the rest. */
#include "agent/agent_running.h"

#include <signal.h>

#include "agent/agent_internal.h"
#include "base/alloc.h"

enum { INPUT_MAX = 1024 * 1024 };

struct agent_runs {
    pthread_mutex_t lock; /* guards list and its entries' users, stopped */
    pthread_cond_t changed;
    struct list list;
};

void agent_runs_open(struct agents *agents)
{
    struct agent_runs *runs = xcalloc(1, sizeof(*runs));

    (void)pthread_mutex_init(&runs->lock, NULL);
    (void)pthread_cond_init(&runs->changed, NULL);
    list_init(&runs->list);
    agents->runs = runs;
}

void agent_runs_close(struct agents *agents)
{
    if (!agents->runs)
        return;
    (void)pthread_cond_destroy(&agents->runs->changed);
    (void)pthread_mutex_destroy(&agents->runs->lock);
    free(agents->runs);
    agents->runs = NULL;
}

void agent_running_add(struct agents *agents, struct agent_running *running,
                       struct provider_process *process)
{
    struct agent_runs *runs = agents->runs;

    running->process = process;
    (void)pthread_mutex_lock(&runs->lock);
    list_push_back(&runs->list, &running->link);
    (void)pthread_mutex_unlock(&runs->lock);
}

bool agent_running_stopped(struct agents *agents, struct agent_running *running)
{
    bool stopped;

    (void)pthread_mutex_lock(&agents->runs->lock);
    stopped = running->stopped;
    (void)pthread_mutex_unlock(&agents->runs->lock);
    return stopped;
}

void agent_running_remove(struct agents *agents, struct agent_running *running)
{
    struct agent_runs *runs = agents->runs;

    (void)pthread_mutex_lock(&runs->lock);
    list_remove(&running->link);
    while (running->users)
        (void)pthread_cond_wait(&runs->changed, &runs->lock);
    (void)pthread_mutex_unlock(&runs->lock);
}

/* Under the lock. */
static struct agent_running *find(struct agent_runs *runs, struct str id)
{
    struct list *node;

    list_for_each (node, &runs->list) {
        struct agent_running *running = container_of(node, struct agent_running, link);

        if (str_is(id, running->id))
            return running;
    }
    return NULL;
}

static struct agent_running *acquire(struct agents *agents, const struct agent_caller *caller,
                                     struct str sandbox_id, struct str id, struct error *err)
{
    struct agent_runs *runs = agents->runs;
    struct agent_running *running;

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

static void release(struct agents *agents, struct agent_running *running)
{
    (void)pthread_mutex_lock(&agents->runs->lock);
    if (--running->users == 0)
        (void)pthread_cond_broadcast(&agents->runs->changed);
    (void)pthread_mutex_unlock(&agents->runs->lock);
}

int agent_exec_input(struct agents *agents, const struct agent_caller *caller,
                     struct str sandbox_id, struct str id, struct str data, bool close,
                     struct error *err)
{
    struct agent_running *running;
    int r = 0;

    if (data.len > INPUT_MAX)
        return error_set(err, ERROR_LIMIT, "input is at most %d bytes at once", INPUT_MAX);
    running = acquire(agents, caller, sandbox_id, id, err);
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
    release(agents, running);
    return r;
}

int agent_exec_signal(struct agents *agents, const struct agent_caller *caller,
                      struct str sandbox_id, struct str id, int signal, struct error *err)
{
    struct agent_running *running = acquire(agents, caller, sandbox_id, id, err);
    int r;

    if (!running)
        return -1;
    r = provider_process_signal(running->process, signal, err);
    release(agents, running);
    return r;
}

void agent_exec_stop(struct agents *agents, struct str id)
{
    struct agent_running *running;

    (void)pthread_mutex_lock(&agents->runs->lock);
    running = find(agents->runs, id);
    if (running && !running->stopped) {
        running->stopped = true;
        provider_process_cancel(running->process);
    }
    (void)pthread_mutex_unlock(&agents->runs->lock);
}
