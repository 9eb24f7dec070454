/* An interactive terminal in a sandbox: opened, left and found again. The PTY lives on for a while
 * (60 s) after its viewer has gone; coming back within it gives the same shell. Emits
 * terminal.opened, terminal.closed, terminal.failed. */
#pragma once

#include "agent/agent.h"

struct agent_terminal;

/* on_data and on_end run on the terminal's own thread: they must only pass on. on_data takes the
 * data; false: the viewer cannot take more now, the terminal waits until agent_terminal_resume().
 * on_end: once, when the shell has ended (why = NULL) or is lost. */
struct agent_terminal_viewer {
    bool (*on_data)(void *arg, struct str data);
    void (*on_end)(void *arg, int exit_code, const struct error *why);
    void *arg;
};

struct agent_terminal_request {
    struct str sandbox_id;
    struct str session_id;  /* for events; STR_NONE */
    struct str terminal_id; /* one to come back to; STR_NONE = a new one */
    uint16_t cols, rows;    /* 0 = 120 x 40 */
    struct str cwd;         /* STR_NONE = the default */
};

/* out_id: what to ask for when coming back. */
int agent_terminal_open(struct agents *agents, const struct agent_caller *caller,
                        const struct agent_terminal_request *request,
                        const struct agent_terminal_viewer *viewer, char out_id[AGENT_ID_SIZE],
                        struct agent_terminal **out, struct error *err);
/* Never block for long: passed on by the terminal's sender thread, in order. */
void agent_terminal_input(struct agent_terminal *terminal, struct str data);
void agent_terminal_resize(struct agent_terminal *terminal, uint16_t cols, uint16_t rows);
void agent_terminal_resume(struct agent_terminal *terminal);
/* The viewer goes: no callback after it returned. */
void agent_terminal_leave(struct agent_terminal *terminal);
