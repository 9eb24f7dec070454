/* Where a call is, and where it may go from there. Who owns a call in each state is at enum call_state; the picture is
 * in ARCHITECTURE.md.
 *
 * from       to          when
 * OPENED     ASKING      memory does not know the key
 *            READING     it does, and there is a body to read
 *            WAITING     no key is needed, or no body is read before the handler
 *            ANSWERING   refused by its head, its key or a limit
 * ASKING     READING, WAITING, ANSWERING   as above
 *            ORPHANED    the client has gone
 * READING    WAITING     the body is complete
 *            ANSWERING   no file could take it
 *            OVER        the client has gone, or the server answered: the body is too long or too slow
 * WAITING    RUNNING     a worker has it
 *            ANSWERING   refused: the line or the queue is full, or earlier responses are unread
 *            OVER        the client has gone
 *            ORPHANED    the client has gone, and its turn has come at the same time
 * RUNNING    MOVING      call_move()
 *            ANSWERING   the handler is done
 *            UNDOING     it made a sandbox, and the client has closed its side
 *            ORPHANED    the client has gone; a handler that writes its response sees it in the pipe
 * MOVING     as WAITING
 * UNDOING    ANSWERING   with the error that says so
 *            ORPHANED    the client has gone
 * ANSWERING  OVER        the exchange is over, or somebody else has it now
 *            ORPHANED    the client has gone before it had all of the response: a worker ends the sandbox that was made
 * ORPHANED   OVER        whoever had it gave it back
 *
 * An orphan may still change workers: to its next step, and to the end of the sandbox that was made. */
#include <stdlib.h>

#include "base/log.h"
#include "edge/call/call.h"

#define TO(state) (1U << (state))

static const unsigned next_of[CALL_STATES] = {
    [CALL_OPENED] = TO(CALL_ASKING) | TO(CALL_READING) | TO(CALL_WAITING) | TO(CALL_ANSWERING),
    [CALL_ASKING] = TO(CALL_READING) | TO(CALL_WAITING) | TO(CALL_ANSWERING) | TO(CALL_ORPHANED),
    [CALL_READING] = TO(CALL_WAITING) | TO(CALL_ANSWERING) | TO(CALL_OVER),
    [CALL_WAITING] = TO(CALL_RUNNING) | TO(CALL_ANSWERING) | TO(CALL_OVER) | TO(CALL_ORPHANED),
    [CALL_RUNNING] = TO(CALL_MOVING) | TO(CALL_ANSWERING) | TO(CALL_UNDOING) | TO(CALL_ORPHANED),
    [CALL_MOVING] = TO(CALL_RUNNING) | TO(CALL_ANSWERING) | TO(CALL_OVER) | TO(CALL_ORPHANED),
    [CALL_UNDOING] = TO(CALL_ANSWERING) | TO(CALL_ORPHANED),
    [CALL_ANSWERING] = TO(CALL_OVER) | TO(CALL_ORPHANED),
    [CALL_ORPHANED] = TO(CALL_OVER),
};

bool call_state_may(enum call_state from, enum call_state to)
{
    return from < CALL_STATES && to < CALL_STATES && (next_of[from] & TO(to));
}

void call_set_state(struct call *call, enum call_state to)
{
    enum call_state from = atomic_load(&call->state);

    if (!call_state_may(from, to)) {
        log_error(call->desk->ops->name, "request=%s goes from state %d to %d", call->request_id,
                  (int)from, (int)to);
        abort();
    }
    atomic_store(&call->state, to);
}
