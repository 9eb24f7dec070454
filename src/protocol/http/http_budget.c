/* How it works
 *
 * Everybody who is counted has a load: the connection, its address, the owner of the exchange, and all together.
 * Loads are atomic numbers; a lock guards only who has one. An answer that waits has a hold, which is what it added
 * to these loads; http_hold_set() brings it up to date whenever a turn of its connection ends.
 *
 * The list of the write timers is sorted by how long the peers have taken nothing, and every hold is in it: who is to
 * lose an answer is found from its begin. Each loop ends answers of its own; when that is not enough it asks the
 * other loops by an errand. Nothing here calls a handler: what ends is only marked. */
#include "protocol/http/http_budget.h"

#include <malloc.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "protocol/http/http_conn.h"
#include "protocol/loop/workers.h"

enum {
    HOLD_COST = 12 * 1024,     /* what an answer that waits holds besides its bytes */
    HOLD_COST_TLS = 32 * 1024, /* ... and a connection with TLS, whose record waits too */
    STEP_SMALL = 4 * 1024,     /* counted is in such steps, so that few changes are */
    STEP = 64 * 1024,
    PATIENT_MS =
        1000,  /* an answer that is not taken for so long makes place for the next request */
    WHOLE = 8, /* eighths of a share: what may be held */
    TIGHT = 6, /* ... and from where on nothing is begun */
    LOG_MS = 10000,
    LARGE_BLOCK = 2 * LOOP_READ_WIDE, /* above what a loop reads: not mapped for each read */
    KEPT_FREE = 1024 * 1024,          /* at the end of a heap, for the next block */
    QUIET_TICKS = 3, /* after a flood, until memory is given back; then 6, 12, 24 */
    TRIMS = 4,       /* requests of the flood may still be at work at the first one */
};

struct http_account {
    struct http_load load;
    size_t refs; /* guarded by the budget's lock */
    size_t key_len;
    char key[];
};

struct http_budget {
    struct http_load all;
    size_t connection_max, address_max, owner_max;
    _Atomic uint64_t ended;
    atomic_size_t made; /* bytes of large bodies since memory was given back for them */
    struct workers *workers;
    struct work trim;
    atomic_bool flooded;  /* much was held; what is free again is to be given back */
    atomic_uint trims;    /* so often since then */
    atomic_bool trimming; /* ... which is being done */
    uv_mutex_t lock;      /* guards what follows, and refs */
    struct map accounts;
    struct list servers;
};

/* Large blocks are mappings of their own, always: what a flood of them took goes back to the system when they are
 * freed. By itself malloc() would raise the limit with the first one. */
static void tame_malloc(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_FREE);
#endif
}

/* Worker: malloc() keeps what was freed between blocks that are still in use. */
static void give_back(struct work *work)
{
    struct http_budget *budget = container_of(work, struct http_budget, trim);

#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
    atomic_store(&budget->trimming, false);
}

struct http_budget *http_budget_new(size_t bytes, struct workers *workers)
{
    struct http_budget *budget = xcalloc(1, sizeof(*budget));

    budget->workers = workers;
    budget->trim.run = give_back;
    if (workers)
        tame_malloc();

    budget->all.max = bytes;
    budget->owner_max = bytes / 2;
    budget->address_max = bytes / 4;
    budget->connection_max = bytes / 8;
    if (uv_mutex_init(&budget->lock) != 0)
        abort();
    map_init(&budget->accounts);
    list_init(&budget->servers);
    return budget;
}

void http_budget_free(struct http_budget *budget)
{
    if (!budget)
        return;
    map_done(&budget->accounts);
    uv_mutex_destroy(&budget->lock);
    free(budget);
}

size_t http_budget_held(const struct http_budget *budget)
{
    return atomic_load_explicit(&budget->all.held, memory_order_relaxed);
}

uint64_t http_budget_ended(const struct http_budget *budget)
{
    return atomic_load_explicit(&budget->ended, memory_order_relaxed);
}

/* ---- who is counted ---- */

static struct http_account *account_take(struct http_budget *budget, char kind, struct str name,
                                         size_t max)
{
    char key[128] = {kind};
    size_t len = name.len < sizeof(key) - 1 ? name.len : sizeof(key) - 1;
    struct http_account *account;

    memcpy(key + 1, name.p, len);
    uv_mutex_lock(&budget->lock);
    account = map_get(&budget->accounts, str_n(key, len + 1));
    if (!account) {
        account = xcalloc(1, sizeof(*account) + len + 1);
        account->load.max = max;
        account->key_len = len + 1;
        memcpy(account->key, key, len + 1);
        (void)map_put(&budget->accounts, str_n(key, len + 1), account);
    }
    account->refs++;
    uv_mutex_unlock(&budget->lock);
    return account;
}

void http_account_drop(struct http_server *server, struct http_account **account_ref)
{
    struct http_budget *budget = server->config.budget;
    struct http_account *account = *account_ref;

    if (!account)
        return;
    *account_ref = NULL;
    uv_mutex_lock(&budget->lock);
    if (--account->refs == 0) {
        (void)map_remove(&budget->accounts, str_n(account->key, account->key_len));
        free(account);
    }
    uv_mutex_unlock(&budget->lock);
}

void http_budget_join(struct http_conn *conn)
{
    struct http_budget *budget = conn->server->config.budget;

    if (!budget)
        return;
    conn->load.max = budget->connection_max;
    if (conn->address.len)
        conn->account = account_take(budget, 'a', str_n(conn->address.bytes, conn->address.len),
                                     budget->address_max);
}

/* ---- loads ---- */

static bool over(const struct http_load *load, unsigned eighths)
{
    /* One answer alone may be larger than all that its owner has. */
    return atomic_load_explicit(&load->held, memory_order_relaxed) > load->max / WHOLE * eighths &&
           atomic_load_explicit(&load->holders, memory_order_relaxed) > 1;
}

static void flood(struct http_budget *budget)
{
    if (atomic_load_explicit(&budget->trims, memory_order_relaxed))
        atomic_store(&budget->trims, 0);
    if (!atomic_load_explicit(&budget->flooded, memory_order_relaxed))
        atomic_store(&budget->flooded, true);
}

static void add(struct http_load *load, size_t bytes, size_t holders)
{
    (void)atomic_fetch_add_explicit(&load->held, bytes, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&load->holders, holders, memory_order_relaxed);
}

/* Sizes wrap around: a large `bytes` takes away. */
static void add_everywhere(struct http_hold *hold, size_t bytes, size_t holders)
{
    struct http_conn *conn = hold->conn;
    struct http_budget *budget = conn->server->config.budget;

    add(&budget->all, bytes, holders);
    if (http_budget_held(budget) > budget->all.max / 4)
        flood(budget);
    add(&conn->load, bytes, holders);
    if (conn->account)
        add(&conn->account->load, bytes, holders);
    if (hold->owner)
        add(&hold->owner->load, bytes, holders);
}

/* Does `who` hold too much somewhere where `hold` is counted, too? */
static bool shares_blame(const struct http_hold *hold, const struct http_hold *who,
                         unsigned eighths)
{
    return (hold->conn == who->conn && over(&who->conn->load, eighths)) ||
           (hold->conn->account && hold->conn->account == who->conn->account &&
            over(&who->conn->account->load, eighths)) ||
           (hold->owner && hold->owner == who->owner && over(&who->owner->load, eighths));
}

static bool too_much(const struct http_hold *who, unsigned eighths)
{
    return shares_blame(who, who, eighths) ||
           (eighths == WHOLE && over(&who->conn->server->config.budget->all, WHOLE));
}

/* ---- ending answers ---- */

static void tell(struct http_server *server)
{
    uint64_t now = uv_now(loop_uv(server->loop));

    atomic_fetch_add_explicit(&server->config.budget->ended, 1, memory_order_relaxed);
    if (server->told_ms && now - server->told_ms < LOG_MS)
        return;
    server->told_ms = now;
    log_warn("http",
             "unread responses hold too much memory: ended those that waited longest (%llu so far)",
             (unsigned long long)http_budget_ended(server->config.budget));
}

/* Ends answers that have waited for at least `age` ms, the longest first, until `who` (NULL: nobody) holds no more than
 * so many eighths of its shares. */
static void relieve(struct http_server *server, const struct http_hold *who, unsigned eighths,
                    uint64_t age)
{
    uint64_t now = uv_now(loop_uv(server->loop));
    struct list *node, *next;

    list_for_each_safe (node, next, &server->timers[CONN_TIMER_WRITE]) {
        struct conn_timer_link *link = container_of(node, struct conn_timer_link, link);
        struct http_hold *hold = link->hold;

        if (now - link->since < age || (who && !too_much(who, eighths)))
            return;
        if (!hold->bytes || !(shares_blame(hold, who ? who : hold, eighths) ||
                              (eighths == WHOLE && over(&server->config.budget->all, WHOLE))))
            continue;
        http_server_end_waiting(link);
        tell(server);
    }
}

static void on_alarm(struct loop_errand *errand)
{
    struct http_server *server = container_of(errand, struct http_server, relieve_errand);

    atomic_store(&server->relieve_posted, false);
    if (server->freed)
        http_server_unref(server);
    else
        relieve(server, NULL, WHOLE, 0);
}

/* What is too much is on other loops. */
static void alarm_others(struct http_server *server)
{
    struct http_budget *budget = server->config.budget;
    struct list *node;

    uv_mutex_lock(&budget->lock);
    list_for_each (node, &budget->servers) {
        struct http_server *other = container_of(node, struct http_server, budget_link);

        if (other != server && !atomic_exchange(&other->relieve_posted, true))
            loop_post(other->loop, &other->relieve_errand);
    }
    uv_mutex_unlock(&budget->lock);
}

void http_budget_add_server(struct http_server *server)
{
    struct http_budget *budget = server->config.budget;

    list_init(&server->budget_link);
    server->relieve_errand.fn = on_alarm;
    if (!budget)
        return;
    uv_mutex_lock(&budget->lock);
    list_push_back(&budget->servers, &server->budget_link);
    uv_mutex_unlock(&budget->lock);
}

void http_budget_remove_server(struct http_server *server)
{
    struct http_budget *budget = server->config.budget;

    if (!budget)
        return;
    uv_mutex_lock(&budget->lock);
    list_remove(&server->budget_link);
    uv_mutex_unlock(&budget->lock);
    if (atomic_load(&server->relieve_posted))
        server->handles++; /* until the errand has run */
}

/* ---- holds ---- */

static size_t counted(const struct http_hold *hold, size_t memory)
{
    size_t step = memory > STEP ? STEP : STEP_SMALL, sum;

    if (!memory)
        return 0;
    sum = (memory + step - 1) / step * step + HOLD_COST;
    if (hold->bytes >= sum && hold->bytes - sum < STEP && memory > STEP)
        return hold->bytes; /* the next write may need it again */
    return sum;
}

void http_hold_release(struct http_hold *hold)
{
    if (!hold->bytes)
        return;
    add_everywhere(hold, -hold->bytes, (size_t)-1);
    hold->bytes = 0;
    http_account_drop(hold->conn->server, &hold->owner);
}

/* The owner as long as the hold lasts; the exchange may end before. */
static void take_owner(struct http_hold *hold)
{
    struct http_budget *budget = hold->conn->server->config.budget;

    if (!hold->ex || !hold->ex->owner)
        return;
    hold->owner = hold->ex->owner;
    uv_mutex_lock(&budget->lock);
    hold->owner->refs++;
    uv_mutex_unlock(&budget->lock);
}

void http_hold_update(struct http_hold *hold, size_t memory)
{
    size_t bytes = counted(hold, memory), before = hold->bytes;

    if (bytes && hold->secure)
        bytes += HOLD_COST_TLS;
    if (bytes == before)
        return;
    if (!bytes) {
        http_hold_release(hold);
        return;
    }
    if (!before)
        take_owner(hold);
    add_everywhere(hold, bytes - before, before ? 0 : 1);
    hold->bytes = bytes;
    if (bytes < before || !too_much(hold, WHOLE))
        return;
    relieve(hold->conn->server, hold, WHOLE, 0);
    if (hold->bytes && too_much(hold, WHOLE))
        alarm_others(hold->conn->server);
}

void http_budget_flooded(struct http_server *server)
{
    if (server->config.budget)
        flood(server->config.budget);
}

/* malloc() keeps as much free memory after many large bodies that the kernel took at once as after bodies that waited. */
void http_budget_made(struct http_server *server, size_t bytes)
{
    struct http_budget *budget = server->config.budget;

    if (!budget || bytes < STEP ||
        atomic_fetch_add_explicit(&budget->made, bytes, memory_order_relaxed) < budget->all.max)
        return;
    atomic_store_explicit(&budget->made, 0, memory_order_relaxed);
    flood(budget);
}

bool http_budget_tick(struct http_server *server)
{
    struct http_budget *budget = server->config.budget;

    if (!budget || !budget->workers || !atomic_load(&budget->flooded))
        return false;
    if (http_budget_held(budget) > budget->all.max / WHOLE) {
        server->quiet_ticks = 0;
        return true;
    }
    /* What the last ones held is freed by now. */
    if (++server->quiet_ticks < (unsigned)QUIET_TICKS << atomic_load(&budget->trims) ||
        atomic_exchange(&budget->trimming, true))
        return true;
    server->quiet_ticks = 0;
    if (workers_run(budget->workers, &budget->trim) != 0)
        atomic_store(&budget->trimming, false); /* they are busy: again later */
    else if (atomic_fetch_add(&budget->trims, 1) + 1 >= TRIMS)
        atomic_store(&budget->flooded, false);
    return true;
}

/* ---- before something is begun ---- */

bool http_budget_admits(struct http_conn *conn)
{
    const struct http_hold who = {.conn = conn};

    if (!conn->server->config.budget || !too_much(&who, TIGHT))
        return true;
    relieve(conn->server, &who, TIGHT, PATIENT_MS);
    return !too_much(&who, TIGHT);
}

bool http_owner_has_room(struct http_exchange *ex)
{
    struct http_hold who = {.conn = ex->ops->conn(ex), .owner = ex->owner};

    if (!ex->owner || !too_much(&who, TIGHT))
        return true;
    relieve(ex->server, &who, TIGHT, PATIENT_MS);
    return !over(&ex->owner->load, TIGHT);
}

bool http_set_owner(struct http_exchange *ex, struct str owner)
{
    struct http_budget *budget = ex->server->config.budget;

    if (!budget || !owner.len || !ex->open)
        return true;
    if (!ex->owner)
        ex->owner = account_take(budget, 't', owner, budget->owner_max);
    return http_owner_has_room(ex);
}

bool http_budget_tight(struct http_exchange *ex)
{
    const struct http_budget *budget = ex->server->config.budget;
    struct http_hold who = {.conn = ex->ops->conn(ex), .owner = ex->owner};

    return budget && (over(&budget->all, TIGHT) || shares_blame(&who, &who, TIGHT));
}
