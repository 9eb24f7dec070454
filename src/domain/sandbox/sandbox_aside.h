/* What recovery keeps although the store does not know it; sandbox_aside.c. For one thread, during recovery. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "store/core/store.h"

enum { ASIDE_TEXT_MAX = 16 << 20 };

struct aside {
    struct store *store;
    bool strange; /* the first start with this store */
    struct arena arena;
    struct str before; /* the list as it was read */
    struct map listed; /* its lines */
    struct buf text;   /* the list as it is to be */
};

/* aside_done() in any case. */
int aside_open(struct aside *aside, struct store *store, struct error *err);
void aside_done(struct aside *aside);
#define auto_aside __attribute__((cleanup(aside_done)))
/* Of a "box" or a "layer" that is there and that the store does not know: is it kept? Then it is in the next list. */
bool aside_keeps(struct aside *aside, const char *kind, const char *name);
/* After all were asked about and before anything is deleted or made. */
int aside_save(struct aside *aside, struct error *err);
