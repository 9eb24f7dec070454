/* Memory that answers may hold while their clients do not take them, for all servers of a process together.
 *
 * Counted are the bytes that are queued and the objects that wait with them. Static bytes are not, nor are bytes of
 * files: these lie on a disk (base/spool.h counts them), never in a memfd. Of all the memory an owner (a team, http_set_owner()) may hold half, an address (IPv4 address or IPv6 /64;
 * loopback is not counted) a quarter, and a connection an eighth. One answer that is larger than that is still sent.
 *
 * Who holds more than its share loses the answers whose bytes were not taken for longest: a stream is reset with
 * ENHANCE_YOUR_CALM, a connection of HTTP/1 is closed with a reset. From three quarters of a share on, producers of
 * long answers wait for their client, answers that nobody has taken for a second are ended, and when that is not
 * enough no handler is started: 503, a reset stream, or false from http_set_owner(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct http_budget;
struct workers;

/* workers: give memory back to the system after a flood; NULL = nobody does. */
struct http_budget *http_budget_new(size_t bytes, struct workers *workers);
/* After the servers that use it, and the workers. */
void http_budget_free(struct http_budget *budget);
/* Any thread: bytes that are held now, and answers that were ended for others so far. */
size_t http_budget_held(const struct http_budget *budget);
uint64_t http_budget_ended(const struct http_budget *budget);
