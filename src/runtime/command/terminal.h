/* An interactive terminal in a sandbox: opened, left and found again. The PTY lives on for a while
 * (60 s) after its viewer has gone; coming back within it gives the same shell, also after this
 * process was started again where the provider can attach to one that runs. Emits terminal.opened,
 * terminal.closed, terminal.failed. */
#pragma once

#include "runtime/core/runtime.h"

struct terminal;

/* on_data and on_end run on the terminal's own thread: they must only pass on. on_data takes the
 * data; false: the viewer cannot take more now, the terminal waits until terminal_resume().
 * on_end: once, when the shell has ended (why = NULL) or is lost. */
struct terminal_viewer {
    bool (*on_data)(void *arg, struct str data);
    void (*on_end)(void *arg, int exit_code, const struct error *why);
    void *arg;
};

struct terminal_request {
    struct str sandbox_id;
    struct str session_id;  /* for events; STR_NONE */
    struct str terminal_id; /* one to come back to; STR_NONE = a new one */
    uint16_t cols, rows;    /* 0 = 120 x 40 */
    struct str cwd;         /* STR_NONE = the default */
    struct str user;        /* the same */
    struct str
        argv; /* what to run instead of a shell: a JSON array of strings; STR_NONE = a shell */
    struct str env; /* a JSON object of strings, or STR_NONE */
};

/* Whether argv and env are what they shall be. */
int terminal_request_check(const struct terminal_request *request, struct error *err);
/* out_id: what to ask for when coming back. */
int terminal_open(struct runtime *runtime, const struct runtime_caller *caller,
                  const struct terminal_request *request, const struct terminal_viewer *viewer,
                  char out_id[RUNTIME_ID_SIZE], struct terminal **out, struct error *err);
/* Never block for long: passed on by the terminal's sender thread, in order. */
void terminal_input(struct terminal *terminal, struct str data);
void terminal_resize(struct terminal *terminal, uint16_t cols, uint16_t rows);
void terminal_resume(struct terminal *terminal);
/* The viewer goes: no callback after it returned. */
void terminal_leave(struct terminal *terminal);
