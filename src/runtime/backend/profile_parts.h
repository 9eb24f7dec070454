/* Shared by the files profile*.c and by the settings. */
#pragma once

#include "runtime/backend/profile.h"
#include "runtime/core/settings.h"

#define PROFILE_REDACTED "********"

enum { PROFILES_MAX = 200 }; /* of a team */

/* What a record is checked against, and what was found. */
struct profile_check {
    json_t *faults;     /* array of {path, message} */
    const char *prefix; /* of paths: "", "config.", "profiles.x." */
    bool harness;       /* the form {name, config}: its stricter rules hold */
    /* The backend it is for; caps NULL = not known yet, only the record itself is checked. */
    const struct provider_caps *caps;
    const char *backend_name, *type;
    int64_t ttl_max_s; /* of the backend; 0 = not known */
};

void profile_fault(struct profile_check *check, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The flat form of a record in either form: "template" and "workspaceRoot" out of the options,
 * "memoryLimit" into the limits. New reference; *out_harness: which form it was. NULL when it is not
 * an object. */
json_t *profile_flatten(const json_t *record, bool *out_harness);
/* Members in other spellings (snake_case, "env", "image", ...) get ours; in place, in either form. */
void profile_spell(json_t *record);
/* The same for one part of a record: "network", "lifecycle", "limits", "options". */
void profile_spell_part(const char *part, json_t *object);
/* The names there are; NULL at the end. */
extern const char *const profile_keys[], *const profile_network_keys[], *const profile_peers_keys[];
extern const char *const profile_lifecycle_keys[], *const profile_limits_keys[];
extern const char *const profile_e2b_keys[];
/* The record as it was given (either form): types, ranges, keys. */
void profile_check_record(struct profile_check *check, const json_t *config);
/* Against check->caps; flat. */
void profile_check_caps(struct profile_check *check, const json_t *flat);
/* Of a flat record; 0 when it names none. Omitted is deny-all. */
enum provider_egress profile_egress(const json_t *flat);

/* profile_equip.c */
void profile_check_screen(struct profile_check *check, const json_t *options);

/* profile_show.c */
json_t *profile_redacted(const json_t *record);
/* Puts what is "********" in record back from old (or NULL); the path of what cannot be, malloc()ed,
 * or NULL. */
char *profile_restore(json_t *record, const json_t *old);

/* Where the record of a name is: in the file, in the team's row, or built in. */
struct profile_source {
    const json_t *of_file; /* stays as long as the runtime */
    struct str text;       /* of the row, in the arena; STR_NONE = not there */
    json_t *(*built_in)(const struct runtime *runtime);
    struct str provider; /* which it names, in the arena; known once it was read */
};
int profile_find(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 struct arena *arena, struct profile_source *out, struct error *err);
/* New reference. */
int profile_read(const struct runtime *runtime, const struct profile_source *source, json_t **out,
                 struct error *err);
/* Both. */
int profile_load(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 json_t **out, bool *out_read_only, struct error *err);
/* profile_kept.c: what was made of a record before. False: nothing, or of another record. */
bool profile_kept_get(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct profile_source *source, struct arena *arena,
                      struct profile *out);
/* A profile to which no request added anything. */
void profile_kept_put(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct profile_source *source, const struct profile *profile);

/* A backend like this one, with the key of a profile. */
int backend_with_key(struct runtime *runtime, const struct runtime_caller *caller,
                     struct backend *origin, struct str key, struct backend **out,
                     struct error *err);
/* The key of a profile of the team whose digest is this; STR_NONE when there is none. */
struct str profile_find_key(struct runtime *runtime, const struct runtime_caller *caller,
                            const char *digest, struct arena *arena);
enum { KEY_DIGEST_SIZE = 13 };
void profile_key_digest(struct str key, char out[KEY_DIGEST_SIZE]);
