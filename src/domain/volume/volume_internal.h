/* Volumes, and the boxes that serve their content. */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "base/periodic.h"
#include "domain/volume/volume.h"

struct volumes {
    struct sandboxes *sandboxes;
    struct engine *engine;
    struct store *store;
    struct routes *routes;
    struct periodic collect, reap; /* what could not be deleted before; boxes that nobody uses */
    int64_t pause_us;              /* of collect: before the next try after a failure */
    pthread_mutex_t lock;          /* guards boxes and the entries */
    pthread_cond_t changed;
    struct map boxes; /* volume id to struct content */
};

/* ---- volume_content.c; a void * is a struct volumes: hooks of the sandboxes, and a job ---- */

void content_init(struct volumes *all);
/* Ends the boxes. */
void content_done(struct volumes *all);
/* Has a box serve the content of the volume with this token; blocks. ERROR_UNAUTHORIZED. */
int content_serve(struct str token, void *arg, struct error *err);
/* Ends the box of a volume that is about to go. */
void content_close(struct volumes *all, struct str volume_id);
/* The box of this id ended. True when it was one of these. */
bool content_died(void *all, const char *box_id);
/* Ends those that were not used for a minute. */
void content_reap(void *all);
