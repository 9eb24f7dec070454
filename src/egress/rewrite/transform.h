/* Requests of one HTTP/1 connection, written anew with the headers of a rule. What is passed on is made of what was
 * understood, with one statement about where the body ends, so that the server cannot read it differently: a secret
 * that is set in a second request must never become the body of a first one.
 *
 * Answers are not changed, but followed: which of them belongs to which request decides whether an upgrade was agreed
 * to, and from there on the connection is no HTTP any more. Until that is known nothing that comes behind a request for
 * an upgrade is looked at. */
#pragma once

#include "base/buf.h"
#include "egress/policy/rules.h"
#include "egress/rewrite/asked.h"
#include "protocol/http/http_parser.h"

enum { TRANSFORM_STEP = 64 * 1024 };

/* May the request be made, and by which rule (NULL: none, it is passed on as it is)? Returns why not, or NULL. */
typedef const char *transform_fn(void *arg, const struct http_request *request,
                                 const struct rule **out);

struct transform {
    struct http_parser request, answer;
    transform_fn *fn;
    void *arg;
    struct buf *out;   /* during a call */
    bool chunked;      /* the body of the current request */
    bool opaque;       /* no HTTP any more */
    bool blind;        /* an answer could not be followed */
    const char *fault; /* why it broke, for people */
    struct asked_list asked;
};

void transform_init(struct transform *transform, transform_fn *fn, void *arg);
void transform_done(struct transform *transform);
/* Uses bytes of the client's from the front of *in and appends what is to be sent. What is left of *in has to wait:
 * for an answer (transform_waits()), or until *out is empty. False when it broke: nothing more may be sent than what
 * is in *out. */
bool transform_request(struct transform *transform, struct str *in, struct buf *out);
bool transform_waits(const struct transform *transform);
/* Bytes of the server's, on their way to the client. False when it broke. */
bool transform_answer(struct transform *transform, struct str bytes);
