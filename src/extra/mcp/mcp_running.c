/* Requests that are being worked on, so that they can be cancelled: by the client's word, by its leaving, or because
 * the server stops. */
#include "extra/mcp/mcp_tool.h"
#include "protocol/json/json_shape.h"

static void lock(struct mcp *mcp)
{
    (void)pthread_mutex_lock(&mcp->lock);
}

static void unlock(struct mcp *mcp)
{
    (void)pthread_mutex_unlock(&mcp->lock);
}

/* Under the lock. */
static void stop(struct mcp *mcp, struct mcp_running *running)
{
    running->cancelled = true;
    if (running->process_id[0])
        runtime_exec_stop(mcp->config.runtime, str_of(running->process_id));
}

/* The client has gone, on the loop. */
static void on_close(void *arg)
{
    struct mcp_call *call = arg;

    lock(call->mcp);
    stop(call->mcp, &call->running);
    unlock(call->mcp);
}

void mcp_running_add(struct mcp_call *call)
{
    struct mcp_running *running = &call->running;
    char *id = json_dumps(call->message.id, JSON_COMPACT | JSON_ENCODE_ANY);

    running->id = arena_str(&call->arena, str_of(id));
    free(id);
    running->session = call->session;
    running->team_id = call->team_id;
    running->key_id = call->key_id;
    lock(call->mcp);
    running->cancelled = atomic_load(&call->mcp->draining);
    list_push_back(&call->mcp->running, &running->link);
    unlock(call->mcp);
    if (!call_pipe_on_close(&call->pipe, on_close, call))
        on_close(call);
}

void mcp_running_remove(struct mcp_call *call)
{
    (void)call_pipe_on_close(&call->pipe, NULL, NULL);
    lock(call->mcp);
    list_remove(&call->running.link);
    unlock(call->mcp);
}

bool mcp_running_started(struct mcp_call *call, const char *process_id)
{
    bool cancelled;

    lock(call->mcp);
    (void)str_copy(str_of(process_id), call->running.process_id, sizeof(call->running.process_id));
    cancelled = call->running.cancelled;
    unlock(call->mcp);
    return !cancelled;
}

bool mcp_running_cancelled(struct mcp_call *call)
{
    bool cancelled;

    lock(call->mcp);
    cancelled = call->running.cancelled;
    unlock(call->mcp);
    return cancelled;
}

void mcp_running_cancel(struct mcp_call *call, struct str id)
{
    struct list *node;

    lock(call->mcp);
    list_for_each (node, &call->mcp->running) {
        struct mcp_running *running = container_of(node, struct mcp_running, link);

        if (str_eq(running->team_id, call->team_id) && str_eq(running->key_id, call->key_id) &&
            str_eq(running->session, call->session) && (!id.p || str_eq(running->id, id)))
            stop(call->mcp, running);
    }
    unlock(call->mcp);
}

void mcp_drain(struct mcp *mcp)
{
    struct list *node;

    lock(mcp);
    atomic_store(&mcp->draining, true);
    list_for_each (node, &mcp->running)
        stop(mcp, container_of(node, struct mcp_running, link));
    unlock(mcp);
}
