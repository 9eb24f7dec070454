/* For the tests of this folder: a server and its clients on one loop in one thread; whoever waits
 * turns the loop. */
#pragma once

#include "base/buf.h"
#include "base/test.h"
#include "protocol/http/http_server.h"

struct rig {
    struct loop *loop;
    struct http_server *server;
    uint16_t port;
    char unix_path[64];
};

void rig_start(struct rig *rig, const struct http_server_config *config);
void rig_start_unix(struct rig *rig, const struct http_server_config *config);
void rig_stop(struct rig *rig); /* checks that nothing is left */
int rig_connect(struct rig *rig);
/* Set before rig_start(): the server's connections go through stream_test_filter(), and so do those that
 * rig_connect() makes, beyond what it returns. */
extern bool rig_filtered;
void rig_turn(struct rig *rig);
void rig_wait_ms(struct rig *rig, int ms);
void rig_send(struct rig *rig, int fd, struct str bytes);
/* Reads until `until` is in it, or until the end of the stream when NULL. *out_errnum: how it ended
 * (0 = cleanly). */
void rig_read(struct rig *rig, int fd, const char *until, struct buf *out, int *out_errnum);
/* Sends, reads to the end of the stream, checks for a substring. */
void rig_expect(struct rig *rig, const char *request, const char *expected);

enum { RIG_BIG = 16 * 1024 * 1024 };

/* What the handler of rig_config has seen: /hello /none /echo /count /pause /chunks /big /file /short
 * /evil are answered, anything else is kept for the test. */
struct rig_seen {
    int requests, dones, finishes, data_calls, drains;
    size_t data_bytes, big_left;
    bool ended;
    struct http_exchange *kept;
};
extern struct rig_seen seen;
extern const struct http_server_config rig_config;

void rig_reply(struct http_exchange *ex, struct str text);
