/* Shared by the files of this folder.
 *
 * A build is a build that was started: it waits in the queue, then a thread of the pool has it alone. Its stages are run by
 * that thread, or by threads of their own when there are several; each has its boxes, its log lines go to the
 * build's log. Nobody else touches a build but to tell it to stop.
 *
 * Locks: builds.lock guards the queue and the list of what runs; build.lock the states of its stages; build_log.lock
 * its lines. Never two at once, and nothing slow under any. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/cond.h"
#include "base/id.h"
#include "base/list.h"
#include "base/periodic.h"
#include "base/thread.h"
#include "domain/build/build.h"
#include "domain/build/recipe.h"
#include "domain/sandbox/sandbox.h"
#include "host/engine/engine.h"
#include "protocol/fetch/fetch.h"
#include "store/platform/store_build.h"

enum {
    KEY_SIZE = 65, /* SHA-256, hex */
    BUILD_THREADS_MAX = 64,
    LOG_LINE_MAX = 4096,
    LOG_LINES_MAX = 50000, /* of one build */
    LOG_BATCH = 64,
    TICK_MS = 200, /* how often a thread that waits looks whether it is to stop */
    COMMAND_SHOWN = 1000,
};

struct builds {
    struct builds_config config; /* strings are ours */
    struct fetch *fetch;
    char *uploads, *feeds, *spool_dir; /* directories */
    struct bootstrap_keyring {
        const char *name;   /* in feeds; NULL = the base's own keyring */
        char sum[KEY_SIZE]; /* of what is in it */
    } keyring;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was queued or has ended, or we stop */
    struct list queue, running;
    struct list turns;     /* what is being made for several builds: build_turn.c */
    pthread_cond_t turned; /* something of it has ended */
    bool stopping;
    struct thread threads[BUILD_THREADS_MAX];
    struct periodic keeper; /* also after each build */
};

/* ---- build_log.c: what a build says ---- */

struct build_log {
    struct store *store;
    struct str build_id;
    pthread_mutex_t lock; /* guards what follows */
    struct store_build_log lines[LOG_BATCH];
    size_t count, total;
    int64_t flushed_us;
};

void log_open(struct build_log *log, struct store *store, struct str build_id);
void log_close(struct build_log *log); /* writes what is left */
void log_line(struct build_log *log, int64_t level, struct str step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Writes what waits. */
void log_flush(struct build_log *log);
/* Writes what has waited for a while. */
void log_tick(struct build_log *log);

/* Output of a program, cut into lines. */
struct log_stream {
    struct build_log *log;
    struct str step;
    const char *prefix; /* "[builder 1/2] [stdout]: " */
    int64_t level;
    struct buf line;
};
void log_stream_open(struct log_stream *stream, struct build_log *log, struct str step,
                     int64_t level, const char *prefix);
void log_stream_add(struct log_stream *stream, struct str data);
void log_stream_close(struct log_stream *stream);

/* ---- builds (builds.c) ---- */

enum stage_state { STAGE_PENDING, STAGE_DONE, STAGE_FAILED };

struct build {
    struct list link; /* of builds.queue or .running */
    struct builds *all;
    void (*run)(
        struct build *build); /* of one that its caller waits for and owns; NULL = build_whole() */
    bool ended;               /* run() has returned; guarded by builds.lock */
    struct arena arena;
    struct store_build row;
    json_t *tree; /* keeps the recipe's strings */
    struct recipe recipe;
    struct build_log log;
    int64_t deadline_us;            /* monotonic */
    struct spool_charge charge;     /* for its temporary files, until it ends */
    atomic_bool cancelled, stopped; /* stopped: a stage failed, the others need not go on */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stage *stages; /* one for each of the recipe's */
};

/* ERROR_CONFLICT "the build was cancelled", ERROR_TIMEOUT; 0 = go on. */
int build_check(const struct build *build, struct error *err);
bool build_stopped(void *build);
/* Before so many bytes are written to a temporary file of the build, by any of its threads. */
int build_grow(void *arg, int64_t bytes, struct error *err);
/* From start to end, by a thread of the pool (build_whole.c). */
void build_whole(struct build *build);
void build_free(struct build *build);
/* Queues a build with a run() and waits until that has returned. -1 when run() was not called: too many wait, or it was
 * cancelled before its turn. When it is cancelled later, build_check() tells run(). */
int builds_run(struct builds *all, struct build *build, const struct cancel *cancel,
               struct error *err);

/* ---- boxes (build_box.c) ---- */

/* A box that works for a build. Nobody else knows it: after a crash it is a leftover. */
struct build_box {
    struct build *build;
    char id[ID_SIZE];
    char token[TOKEN_SIZE];
    bool runs, has_feed;
    uint32_t pids; /* when it was started */
};

struct build_box_wants {
    struct str layers;
    const char *fill; /* NULL = none */
    bool feed, internet;
    const struct box_volume *volumes;
    size_t volume_count;
};

/* With feed: its directory, which build_box_feed_dir() names, was made and has the program `unpack`. */
int build_box_open(struct build_box *box, struct build *build, const struct build_box_wants *wants,
                   struct error *err);
/* Makes the directory before the box is started, so that files can be there from the first moment. */
int build_box_prepare(struct build_box *box, struct build *build, struct error *err);
void build_box_close(struct build_box *box);
void build_box_feed_dir(const struct build_box *box, char *out, size_t size);
/* A file of ours appears as /run/feed/NAME. */
int build_box_feed_link(const struct build_box *box, const char *path, const char *name,
                        struct error *err);

struct build_command {
    const char *const *argv;
    const char *user; /* NULL = root */
    const char *cwd;  /* NULL = the user's home */
    const struct pair *env;
    size_t env_count;
    struct str input;             /* for its stdin; STR_NONE = none */
    struct log_stream *out, *err; /* where its output goes; NULL = nowhere */
    int spool_fd;                 /* stdout goes here instead; -1 = no */
    struct buf *text, *errors;    /* stdout and stderr as text besides; NULL = no */
    int64_t timeout_ms;           /* besides the build's; 0 = none */
};

struct build_exit {
    int code;
    bool out_of_memory;
};

/* Until it has ended, or the build is to stop. */
int build_box_run(struct build_box *box, const struct build_command *command,
                  struct build_exit *out, struct error *err);
/* The same, and an exit code other than 0 is an error: "WHAT: exit status 3: last line". */
int build_box_must(struct build_box *box, const struct build_command *command, const char *what,
                   struct error *err);
/* Starts it and lets it go on. */
struct envd_process;
int build_box_start(struct build_box *box, const struct build_command *command,
                    struct envd_process **out, struct error *err);
/* Ends what a step left running. */
int build_box_calm(struct build_box *box, struct error *err);

/* ---- stages (build_stage.c) ---- */

struct stage {
    struct build *build;
    const struct recipe_stage *recipe;
    size_t index;
    enum stage_state state; /* guarded by build.lock */
    bool needed;
    struct thread thread;
    struct arena arena;

    /* What holds after the steps so far. */
    struct str layers;
    struct box_spec pinned; /* these layers */
    bool is_pinned;
    char key[KEY_SIZE];
    struct pair *env;
    size_t env_count, env_cap;
    struct str user, workdir; /* workdir "" = the user's home */
    struct str start_cmd, ready_cmd;
    struct str note; /* what the last step found out, as JSON: {"user"}, {"workdir"} */
    bool ran;        /* a step was not taken from the cache, so none that follows is */

    struct box_spec *kept; /* other layers that it needs to the end, pinned */
    size_t kept_count;

    struct build_box box;
    struct str home, home_user; /* of the user; "" = not asked yet */

    /* Why it failed. */
    struct str reason, reason_step;
};

/* Sets reason and step; -1. The text of err, or of fmt. */
int stage_fail(struct stage *stage, struct str step, const struct error *err);
int stage_fail_text(struct stage *stage, struct str step, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int stage_run(struct stage *stage);
/* Ends its box, lets go of its layers. */
void stage_done(struct stage *stage);
/* Starts its box from the present layers, unless it runs. */
int stage_box(struct stage *stage, struct error *err);
/* The layers are these from now on. */
int stage_set_layers(struct stage *stage, struct str layers, struct error *err);
/* Takes layers and note from the cache of steps: 1, or 0 when they have to be made. */
int stage_take_cached(struct stage *stage, const char *key, struct error *err);
/* Takes over a pin of other layers. */
void stage_keep(struct stage *stage, const struct box_spec *pin);
void stage_set_env(struct stage *stage, struct str name, struct str value);
struct str stage_env(const struct stage *stage, struct str name);
/* recipe_expand() with the stage's variables. */
struct str stage_expand(struct stage *stage, const struct recipe_step *step, struct str text);
struct str stage_step_name(struct stage *stage, const struct recipe_step *step);
/* Absolute: beneath the working directory, or the user's home. */
int stage_path(struct stage *stage, struct str path, struct str *out, struct error *err);

/* ---- steps (build_step.c, build_run.c, build_copy.c) ---- */

/* In the stage's box, which runs. Set the reason. */
int step_run(struct stage *stage, const struct recipe_step *step);
int step_copy(struct stage *stage, const struct recipe_step *step);
/* A path of another stage ("fromStage", or an image) into the box as an archive, /run/feed/NAME. */
int copy_from(struct stage *stage, struct str from_stage, struct str from_image, struct str path,
              const char *name, struct error *err);
/* Does running it change files? */
bool step_has_files(const struct recipe_step *step);
/* What it changes besides files: environment, user, working directory. */
int step_apply(struct stage *stage, const struct recipe_step *step, struct error *err);
/* Does it. */
int step_do(struct stage *stage, const struct recipe_step *step);
/* Volumes of the cache mounts of a stage. */
int run_volumes(struct stage *stage, struct box_volume *out, size_t *out_count, struct error *err);

/* ---- what it begins from (build_base.c, build_image.c, build_bootstrap.c) ---- */

#define BASE_STEP STR("base")

int stage_begin(struct stage *stage);
/* The tree of an image, from the cache or unpacked now; kept by the stage. */
struct image_tree {
    struct str layers;
    struct str digest;
    struct recipe_pairs env;
    struct str user, workdir;
};
int image_tree(struct stage *stage, const struct build_image_source *source, struct image_tree *out,
               struct error *err);
/* What a reference to an image means now. */
int image_digest(struct stage *stage, struct str reference, struct str *out, struct error *err);
/* A minimal Debian of the stage's release, from the cache or made now; kept by the stage. */
int bootstrap_tree(struct stage *stage, struct str *out_layers, struct error *err);
/* Reads the keyring of the configuration, if there is one, and copies it to where boxes get it from. */
int bootstrap_open(struct builds *all, struct error *err);

/* ---- build_turn.c ---- */

struct build_turn {
    struct list link;
    const char *key;
};
/* Waits until nobody else has the turn for this key, which the caller keeps until it gives it back; fails when the build is to
 * stop. */
int turn_take(struct build *build, const char *key, struct build_turn *turn, struct error *err);
void turn_give(struct build *build, struct build_turn *turn);

/* ---- trees that a box fills, and how (build_fill.c) ---- */

/* The root in which the programs that fill one run. */
int fill_base(struct stage *stage, struct str *out_layers, struct error *err);
/* Runs a program in the box; what it writes is in the log. */
int fill_run(struct stage *stage, struct build_box *box, const char *const *argv, const char *what,
             struct error *err);
/* What a sandbox needs besides, in /run/layer. */
int fill_provision(struct stage *stage, struct build_box *box, struct error *err);
/* Its box has ended: it is a layer from now on. */
int fill_seal(struct stage *stage, const char *name, int64_t *out_bytes, struct error *err);
/* The stage keeps it: the pin of layer_new() is the stage's. */
int fill_take(struct stage *stage, const char *name, struct str *out_layers, struct error *err);

/* ---- the cache (build_cache.c) ---- */

struct key_maker;
struct key_maker *key_new(const char *what);
void key_add(struct key_maker *maker, struct str part);
void key_add_words(struct key_maker *maker, const struct recipe_words *words);
void key_add_pairs(struct key_maker *maker, const struct pair *pairs, size_t count);
/* Frees the maker. */
void key_take(struct key_maker *maker, char out[KEY_SIZE]);
int key_of_step(struct stage *stage, const struct recipe_step *step, char out[KEY_SIZE],
                struct error *err);

/* Whole and pinned (*pin) when found; what is damaged or gone is forgotten. */
int cache_find(struct build *build, const char *key, struct arena *arena, struct store_cached *out,
               struct box_spec *pin, bool *out_found, struct error *err);
int cache_put(struct build *build, const char *key, struct str layers, struct str note,
              int64_t bytes, struct error *err);
/* Forgets what is old or too much. */
void cache_prune(struct builds *all);

/* ---- layers (build_layers.c) ---- */

/* "snap…" or "tree…", in the store before it is made. */
int layer_new(struct build *build, const char *prefix, char out[LAYER_NAME_SIZE],
              struct error *err);
/* It was not made after all. */
void layer_drop(struct build *build, const char *name);
/* The box's files as a new layer above the stage's, which are the stage's layers from now on. */
int stage_seal(struct stage *stage, int64_t *out_bytes, struct error *err);
/* Layers that start boxes fast: the snapshot among them as a tree. */
int stage_publish(struct stage *stage, struct error *err);

/* ---- the end (build_finish.c) ---- */

/* Of the target: published, tried, and in the store as ready. */
int build_finish(struct build *build, struct stage *stage);

/* ---- files (build_files.c) ---- */

/* Path of an uploaded file's body. */
int files_path(struct builds *all, struct str team_id, struct str hash, struct arena *arena,
               struct str *out_body, char **out_path, struct error *err);
void files_prune(struct builds *all);
int files_open(struct builds *all, struct error *err);
/* The program is in feeds from now on. */
int files_unpack(struct builds *all, struct error *err);
/* A file without a name beside the uploads, for what passes through. */
int files_spool(struct builds *all, struct error *err);
/* SHA-256 of all that it has, as hex digits. */
int files_hash(int fd, char out[KEY_SIZE], int64_t *out_length, struct error *err);
int files_link_fd(int fd, const char *path, struct error *err);
