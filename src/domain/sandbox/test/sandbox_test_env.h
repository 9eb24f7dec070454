/* A domain to test: fake engine with envds, a store that can be told to fail, routes. */
#pragma once

#include <stdlib.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/test.h"
#include "domain/delivery/webhook.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox.h"
#include "domain/volume/volume.h"
#include "host/engine/test/engine_fake.h"
#include "protocol/sender/sender.h"

#define TEAM  STR("team1")
#define OTHER STR("team2")

struct env {
    char dir[48];
    struct engine *engine;
    struct store *store;
    struct routes *routes;
    struct sandboxes *all;
    struct sandboxes_config config;
    struct sender *sender;
    struct volumes *volumes;
    struct webhooks *webhooks;
    struct webhooks_config webhooks_config;
};

/* sandbox_test_env.c */
void env_open(struct env *env, size_t warm);
/* The domain without its store, engine and routes; stopping twice does nothing. */
void env_start(struct env *env);
void env_stop(struct env *env);
/* Like a crash and a new process: nothing is ended, store and engine stay. */
void env_reopen(struct env *env);
void env_close(struct env *env);
#define auto_env __attribute__((cleanup(env_close)))
/* The n-th step of a statement that the calling thread does from now fails; 0 = none. */
void env_fail_store_at(int nth);

int env_create_timeout(struct env *env, int64_t timeout_s, char out_id[ID_SIZE], struct error *err);
/* With a long timeout. */
int env_create(struct env *env, char out_id[ID_SIZE], struct error *err);
size_t env_live_rows(struct env *env);
bool env_has_route(struct env *env, const char *id);
/* Each job of the keeper has had a turn when this returns. */
void env_keeper_works(struct env *env);
/* Why an ended sandbox ended; NULL when it is not there, or did not. malloc()ed. */
char *env_end_reason(struct env *env, const char *id);
