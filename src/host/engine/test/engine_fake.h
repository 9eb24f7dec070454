/* More handles on the fake engine, for tests of what is built on engines. */
#pragma once

#include "base/buf.h"
#include "base/str.h"
#include "host/engine/engine.h"

/* Where the envds' sockets go; before the first start. Each envd answers 204 to everything. */
void engine_fake_serve(struct engine *engine, const char *run_dir);
/* What envds answer from now on; 0 = close the connection without an answer. */
void engine_fake_envd_status(struct engine *engine, int status);
/* What an envd answers: all of it, as on the wire, or nothing for the usual. The connection stays open. On the fake's
 * thread, with its lock held. NULL = the usual. */
typedef void engine_fake_envd_fn(void *arg, const char *id, struct str request, struct buf *out);
void engine_fake_envd(struct engine *engine, engine_fake_envd_fn *fn, void *arg);
/* Calls so far: engine operations (but next_event) and requests to envds, which count for
 * engine_fake_fail_at() too. */
int engine_fake_calls(struct engine *engine);
/* How many of them failed because of engine_fake_fail_at(). */
int engine_fake_failures(struct engine *engine);
/* The next `count` kills fail. */
void engine_fake_fail_kills(struct engine *engine, int count);
/* The next `count` freezes find processes that do not stand still in time. */
void engine_fake_fail_freezes(struct engine *engine, int count);
/* Freezing a box takes until this is called with false. */
void engine_fake_hold_freezes(struct engine *engine, bool hold);
/* The next `count` stops find processes that do not end in time. */
void engine_fake_fail_stops(struct engine *engine, int count);
/* The box's first process ends by itself: envd is gone, an event comes. */
void engine_fake_die(struct engine *engine, const char *id, enum box_end end);
/* Events whose taker has come back for the next one: it has done with them. */
int engine_fake_told(struct engine *engine);
/* False when there is no such box. */
bool engine_fake_spec(struct engine *engine, const char *id, struct box_spec *out);
/* A box's process is there; *out_frozen says whether it stands still. */
bool engine_fake_runs(struct engine *engine, const char *id, bool *out_frozen);
/* A box's files are a number: adds to it and returns what it is. Layers and stopped boxes keep it. */
uint64_t engine_fake_disk(struct engine *engine, const char *id, uint64_t add);
/* Layers made by snapshots that are still there. */
size_t engine_fake_layers(struct engine *engine);
/* Somebody took a file out of a layer. */
void engine_fake_damage(struct engine *engine, const char *layer);
/* How long snapshots and starts take, also those under way (a start looks for its layers at the end). */
void engine_fake_slow(struct engine *engine, int snapshot_ms, int start_ms);
/* Snapshots and starts under way that are slow. */
int engine_fake_waiting(struct engine *engine);
/* No disk space is left from now on, or there is. */
void engine_fake_full(struct engine *engine, bool full);
/* The host died and came back: no box runs, disks are there, nobody says anything. */
void engine_fake_reboot(struct engine *engine);
/* How many connections to an envd were tried in vain. */
size_t engine_fake_connects_failed(struct engine *engine);
/* The last request an envd got: head and body, as on the wire. */
void engine_fake_last_request(struct engine *engine, char *out, size_t size);
