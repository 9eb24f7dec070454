/* Shared by the files of this folder. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "extra/browser/browser.h"

#define BROWSER_TEMPLATE "browser"
#define BROWSER_HOME     "/home/user"

struct browsers {
    struct browsers_config config;
    pthread_mutex_t lock; /* guards connected */
    struct list connected;
};

/* A program inside a session's sandbox. */
struct inside_command {
    const char *const *argv;
    struct str input;   /* STR_NONE = none */
    int64_t timeout_ms; /* 0 = 60 s */
    size_t output_max;  /* 0 = 64 KiB; more is ERROR_LIMIT */
};

/* *out may be NULL. ERROR_CONFLICT when it fails: in its own words. */
int inside_run(struct browsers *all, const struct store_browser_session *session,
               const struct inside_command *command, struct buf *out, struct error *err);
/* The same, its output in pieces. -1 ends it. */
int inside_run_to(struct browsers *all, const struct store_browser_session *session,
                  const struct inside_command *command, browser_sink_fn *sink, void *arg,
                  struct error *err);
int inside_read(struct browsers *all, const struct store_browser_session *session, const char *path,
                struct buf *out, struct error *err);
/* browser_files.c */
enum browser_file { FILE_LOG, FILE_RECORD, FILE_EXTENSION };
enum { FILE_PATH_SIZE = 512 };

/* id: one that we made, from its row. */
void browser_file_path(const struct browsers *all, enum browser_file kind, struct str id,
                       char out[FILE_PATH_SIZE]);
/* Charged to the team. ERROR_QUOTA, ERROR_NO_SPACE. */
int browser_file_keep(struct browsers *all, enum browser_file kind, struct str team_id,
                      struct str id, struct str bytes, struct error *err);
/* Deletes the file and then its row. A missing file is no error. */
void browser_file_drop(struct browsers *all, enum browser_file kind, struct str id);
/* Deletes notes that are more than a week old. */
void browser_files_prune(struct browsers *all);
/* At the start: drops what a crash left of extensions, and counts those that older servers kept without counting them. */
void browser_files_settle(struct browsers *all);

/* Puts it where browser-restart finds it. */
int extension_give(struct browsers *all, const struct store_browser_session *session, struct str id,
                   struct error *err);
/* Writes down what happens from now on. */
int notes_begin(struct browsers *all, const struct store_browser_session *session, bool log,
                bool record, struct error *err);
/* Before the sandbox goes. */
void notes_keep(struct browsers *all, const struct store_browser_session *session);
int inside_write(struct browsers *all, const struct store_browser_session *session,
                 const char *path, struct str data, struct error *err);
