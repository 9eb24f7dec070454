/* How far long work is, on stderr: a line that is written anew on a terminal, nothing elsewhere (or --json). Counting is
 * done by any thread, showing by a thread of its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cli_progress;

/* what: "3 files" stands behind the count; NULL: there is none, only bytes. The result is NULL when nobody looks: all functions
 * take that. */
struct cli_progress *cli_progress_start(const char *what);
/* How many bytes there will be; 0: not known. */
void cli_progress_expect(struct cli_progress *progress, uint64_t bytes);
void cli_progress_add(struct cli_progress *progress, uint64_t items, uint64_t bytes);
/* Takes the line away. */
void cli_progress_end(struct cli_progress *progress);

/* The line itself. */
enum { CLI_PROGRESS_SIZE = 160 };
void cli_progress_text(const char *what, uint64_t items, uint64_t bytes, uint64_t expected,
                       double seconds, char out[CLI_PROGRESS_SIZE]);
