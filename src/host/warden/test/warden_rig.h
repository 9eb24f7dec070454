/* A warden without a server, for tests: a world of its own per test, boxes whose envd does what it is
 * told (test_envd.c). */
#pragma once

#include "base/test.h"
#include "host/warden/warden_internal.h"

extern struct warden rig_warden;
extern char rig_data_dir[];

/* Network and mount namespace, data directory, base layer with /lower/{file,dir/{x,y}}. Skips the test
 * without root. */
void rig_open(void);
void rig_close(void);
/* As if the warden had been killed and started again. */
void rig_restart(void);
/* No trace of any box: entry, process, cgroup, subvolume, file. */
void rig_check_nothing_left(void);
size_t rig_descriptors(void);
/* Entries that do not begin with a dot; of a path beneath the data directory. */
size_t rig_count(const char *path);

/* Of the base layer, with a new id. */
struct box_spec rig_spec(void);
void rig_start(const struct box_spec *spec, struct box_info *out);
/* The native engine's entry of it. */
const struct box *rig_box(const char *id);
void rig_kill(const char *id);
void rig_stop(const char *id);
void rig_snapshot(const char *id, const char *layer, struct layer_info *out);
void rig_layer_delete(const char *layer);

/* An operation that is to fail, or that the warden is to be killed in, at each of its steps in turn. */
struct rig_sweep {
    struct box_spec (*begin)(void); /* before each try: what the operation is given */
    int (*operate)(const struct box_spec *spec, struct error *err);
    /* After each try: checks what it left, and leaves nothing. why: it failed, else NULL. */
    void (*after)(const struct box_spec *spec, const struct error *why);
};
/* Every try leaves as many descriptors open as one that succeeds. How many of them failed. */
int rig_fail_everywhere(const struct rig_sweep *sweep);
/* `after` comes when the warden was started again. How many steps there are. */
int rig_crash_everywhere(const struct rig_sweep *sweep);

/* Sends a command to envd of a box; its answer, or "" when there is none in time. Valid until
 * the next call of the thread. */
const char *rig_ask_for(const char *id, int timeout_ms, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define rig_ask(id, ...)             rig_ask_for(id, 20000 * (int)test_patience(), __VA_ARGS__)
#define RIG_CHECK_ASK(want, id, ...) CHECK_STR(str_of(rig_ask(id, __VA_ARGS__)), want)
