/* What a tool of MCP is made of: for the files of this folder, and for extras that bring tools. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "base/str.h"
#include "edge/call/call.h"
#include "edge/call/call_pipe.h"
#include "extra/mcp/mcp.h"
#include "extra/mcp/mcp_message.h"
#include "runtime/core/runtime.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox.h"

enum {
    MCP_BODY_MAX = 8 * 1024 * 1024,
    MCP_NAME_MAX = 128,                /* of what the query says about the own sandbox */
    MCP_TEAM_WAITING_MAX = 1024,       /* requests that wait for a worker of one lane */
    MCP_PICTURE_MAX = 6 * 1024 * 1024, /* and other bytes of one result */
};

struct mcp {
    struct mcp_config config;
    struct call_desk desk;
    json_t *tools;    /* as told by tools/list, without fixtures */
    json_t *fixtures; /* or NULL */
    atomic_bool draining;
    pthread_mutex_t lock; /* guards running */
    struct list running;  /* struct mcp_running */
};

/* A request that is being worked on, until mcp_running_remove(). */
struct mcp_running {
    struct list link;
    struct str session, id; /* id: as JSON */
    struct str team_id, key_id;
    bool cancelled;
    char process_id[RUNTIME_ID_SIZE]; /* of the command that it waits for; "" = none */
};

/* How a request goes on while it is worked on. */
struct mcp_progress {
    json_t *token; /* borrowed; NULL = nobody wants to know */
    int64_t told_ms;
    int64_t done;      /* bytes of output so far */
    int64_t last_told; /* `done` as it was told; always grows */
    struct buf text;   /* output that was not told yet, its end */
};

struct mcp_call {
    CALL_EXTENDS;
    struct mcp *mcp;
    struct runtime_caller caller;
    struct str agent_header, session;
    struct mcp_heads heads;
    bool takes_events; /* text/event-stream */
    struct mcp_message message;
    struct call_pipe pipe;
    struct mcp_running running;
    struct mcp_progress progress;
};

/* What a tool gives back. */
struct mcp_outcome {
    json_t *content;    /* array */
    json_t *structured; /* or NULL */
};

/* 0, or -1 with err, which is told as the tool's own failure. args are as the schema says. */
typedef int mcp_tool_fn(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                        struct error *err);

enum {
    MCP_READS = 1,   /* changes nothing: not in the audit log */
    MCP_TEAM = 2,    /* not with an API key for one sandbox */
    MCP_CONTROL = 4, /* of the control lane; the others are of the work lane */
};

struct mcp_tool {
    const char *name;
    mcp_tool_fn *fn;
    unsigned flags;
};

/* The tools of an extra, ended by one without a name, and what they are told to be: an array as in tools.json. */
struct mcp_tools {
    const struct mcp_tool *rows;
    const unsigned char *json;
};

/* ---- mcp_answer.c ---- */

/* The end of a request: takes the result. */
void mcp_answer(struct mcp_call *call, json_t *result_consume);
/* Takes fault->data. */
void mcp_answer_fault(struct mcp_call *call, struct mcp_fault *fault);
/* A request that was not let in. */
void mcp_refuse(struct mcp_call *call, const struct error *err);
/* err in words for its client: masked, and what is our fault in general words. In the arena. */
struct str mcp_tell(struct mcp_call *call, const struct error *err);
/* A notification, before the result. -1 when the client has gone. Those that do not take events are told nothing. */
int mcp_notify(struct mcp_call *call, const char *method, json_t *params_consume);
/* Where nothing was told for a while: so that nobody on the way gives up. -1 as above. */
int mcp_beat(struct mcp_call *call);

/* ---- mcp_method.c ---- */

/* The message of the call, which is a request. */
void mcp_method(struct mcp_call *call);
/* Which lane it needs. */
enum mcp_lane mcp_method_lane(const struct mcp_call *call);

/* ---- mcp_tool.c ---- */

/* All tools of this build, as they are told to clients; new reference. */
json_t *mcp_tools_described(void);
/* Those that this caller may use here; new reference. */
json_t *mcp_tools(struct mcp_call *call);
/* Which lane a call of that tool needs. A name without a tool is answered on the control lane. */
enum mcp_lane mcp_tool_lane(struct str name, const json_t *args);
/* As docs/internals/lanes.md calls it. */
const char *mcp_lane_name(enum mcp_lane lane);
/* 1 = there is none of that name. */
int mcp_tool_call(struct mcp_call *call, struct str name, json_t *args, json_t **out_result);
/* Text as content. */
void mcp_outcome_text(struct mcp_outcome *out, struct str text);
/* A picture as content. */
void mcp_outcome_image(struct mcp_outcome *out, struct str data, const char *type);
/* What is seen in a sandbox, a PNG: as a picture, with its size. ERROR_LIMIT when it did not fit into the buffer. */
/* Before many bytes of a guest become part of a result: memory for them in base64 and JSON. */
int mcp_outcome_reserve(size_t len, struct error *err);
int mcp_outcome_screen(struct mcp_outcome *out, struct str sandbox_id, const struct buf *png,
                       struct error *err);
/* A document as content. */
void mcp_outcome_document(struct mcp_outcome *out, const char *uri, const char *type,
                          struct str data);
/* As structured content, and the same as text when there is no other. Takes it. */
void mcp_outcome_json(struct mcp_outcome *out, json_t *json_consume);
int64_t mcp_arg_int(const json_t *args, const char *name, int64_t otherwise);

/* ---- mcp_sandbox.c ---- */

/* The sandbox that is meant, by sandbox_id or the caller's own. */
int mcp_sandbox(struct mcp_call *call, const json_t *args, struct str *out_id, struct error *err);
/* The same for tools that need programs of a template. Where the URL does not choose and the caller's own sandbox is not of that template,
 * it is another own one, besides. */
int mcp_sandbox_of(struct mcp_call *call, const json_t *args, const char *template,
                   struct str *out_id, struct error *err);
json_t *mcp_time(int64_t at_us);
json_t *mcp_text(struct str text); /* null for STR_NONE */
mcp_tool_fn mcp_sandbox_create, mcp_sandbox_list, mcp_sandbox_info, mcp_sandbox_kill;
mcp_tool_fn mcp_sandbox_pause, mcp_sandbox_resume, mcp_sandbox_snapshot, mcp_sandbox_fork;
mcp_tool_fn mcp_sandbox_url;

/* ---- mcp_command.c, mcp_job.c, mcp_file.c ---- */

mcp_tool_fn mcp_run_command;
mcp_tool_fn mcp_job_start, mcp_job_status, mcp_job_logs, mcp_job_stop, mcp_job_list;
mcp_tool_fn mcp_read_file, mcp_write_file, mcp_list_files;
/* What a command and a job have in common. Borrows from args. */
int mcp_command_read(struct mcp_call *call, json_t *args, struct runtime_command *out,
                     struct error *err);

/* ---- mcp_running.c ---- */

void mcp_running_add(struct mcp_call *call);
void mcp_running_remove(struct mcp_call *call);
/* The command that the request waits for. False: it was cancelled before. */
bool mcp_running_started(struct mcp_call *call, const char *process_id);
bool mcp_running_cancelled(struct mcp_call *call);
/* Those of this caller's session with that id (as JSON; STR_NONE = all of the session). */
void mcp_running_cancel(struct mcp_call *call, struct str id);

/* ---- mcp_fixture.c ---- */

/* Whether a canned answer stands for this request; then it is answered. */
bool mcp_fixture_answer(struct mcp_call *call);
/* Tools that have canned answers, added to the list. */
void mcp_fixture_tools(const struct mcp *mcp, json_t *tools);
/* What initialize and discover tell. New reference. */
json_t *mcp_capabilities(const struct mcp *mcp);
