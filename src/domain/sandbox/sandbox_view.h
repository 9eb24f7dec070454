/* Sandboxes as callers see them: views of rows, cursors of pages, routes. */
#pragma once

#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_table.h"
#include "store/platform/store_sandbox.h"

/* What stands for the pairs of metadata in the store. */
size_t tags_of(const struct pair *metadata, size_t count, struct arena *arena, struct str **out);
/* Cursors of pages: base64url without padding of "<time in us>__<rest>". */
struct str cursor_encode(const char *text, struct arena *arena);
bool cursor_decode(struct str cursor, size_t max, struct arena *arena, int64_t *out_us,
                   struct str *out_rest);
/* Strings are copied into the arena. */
void view_copy(const struct sandbox_view *view, struct arena *arena, struct sandbox_view *out);
void view_from_row(const struct sandboxes *all, const struct store_sandbox *row,
                   struct sandbox_view *out);
/* The same with what the table knows better. */
void view_shown(const struct sandboxes *all, struct store_sandbox *row,
                const struct table_shown *shown, struct sandbox_view *out);
/* Makes the proxy know what the row says. */
void route_publish(struct sandboxes *all, const char *id, const struct store_sandbox *row,
                   bool running);
/* A number that no route had before; also for routes to other boxes. */
uint64_t route_generation_next(struct sandboxes *all);
