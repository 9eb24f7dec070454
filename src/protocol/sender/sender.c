/* One thread asks the kinds what is due, begins to send and notes what became of it; the hub has all
 * connections. Both meet in `struct sending`, under the lock: the hub writes how it goes and kicks. */
#include "protocol/sender/sender.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/thread.h"

enum {
    ANSWER_MAX = 4096, /* nobody reads more of it */
    IDLE_US = 30 * 1000 * 1000,
    LEAVE_US = 1000 * 1000,
    NAMES_MAX = 8192,
};
#define LAST_PAUSE_US ((int64_t)3600 * 1000000)

struct slot {
    struct sender_kind kind;
    bool used;
    int64_t leave_by_us;   /* it is being removed; 0 = not */
    int64_t rest_until_us; /* the thread's: its store failed */
};

struct sending {
    struct sender *sender;
    struct slot *slot; /* NULL = free */
    struct sender_item item;
    struct arena arena;
    struct fetch_hub_stream *stream;
    int64_t until_us;
    /* under the lock */
    int status; /* 0 = no answer yet */
    size_t received;
    bool over;
    struct error why;
};

struct sender {
    struct fetch_hub *hub;
    struct thread thread;
    pthread_mutex_t lock; /* guards what follows, but only the thread changes sending[].slot */
    pthread_cond_t wake;  /* a kind is gone */
    struct slot slots[SENDER_KINDS];
    struct sending sending[SENDER_MAX];
    size_t turn; /* the thread's: whose kind is asked first */
};

void sender_kick(struct sender *sender)
{
    thread_wake(&sender->thread);
}

/* ---- on the hub's thread ---- */

static void on_head(void *arg, int status)
{
    struct sending *sending = arg;

    (void)pthread_mutex_lock(&sending->sender->lock);
    sending->status = status;
    (void)pthread_mutex_unlock(&sending->sender->lock);
}

static void on_data(void *arg, struct str data)
{
    struct sending *sending = arg;
    bool enough;

    (void)pthread_mutex_lock(&sending->sender->lock);
    sending->received += data.len;
    enough = !sending->over && sending->received > ANSWER_MAX;
    sending->over |= enough;
    (void)pthread_mutex_unlock(&sending->sender->lock);
    if (enough)
        sender_kick(sending->sender);
}

static void on_end(void *arg, const struct error *why)
{
    struct sending *sending = arg;

    (void)pthread_mutex_lock(&sending->sender->lock);
    sending->over = true;
    if (why)
        sending->why = *why;
    (void)pthread_mutex_unlock(&sending->sender->lock);
    sender_kick(sending->sender);
}

/* ---- on the sender's thread ---- */

static int64_t pause_after(const struct sender_kind *kind, int64_t failures)
{
    int64_t pause = kind->first_pause_us;

    while (failures-- > 0 && pause < LAST_PAUSE_US)
        pause *= 2;
    return pause < LAST_PAUSE_US ? pause : LAST_PAUSE_US;
}

/* 1 = it was taken, 0 = it goes on, -1 with the reason. */
static int outcome(struct sending *sending, struct error *why)
{
    bool over;
    int status;

    (void)pthread_mutex_lock(&sending->sender->lock);
    status = sending->status;
    *why = sending->why;
    over = sending->over;
    (void)pthread_mutex_unlock(&sending->sender->lock);
    if (!over && clock_mono_us() < sending->until_us)
        return 0;
    if (status >= 200 && status <= 299)
        return 1;
    if (status)
        return error_set(why, ERROR_UNAVAILABLE, "the receiver answered %d", status);
    if (!over)
        return error_set(why, ERROR_TIMEOUT, "no answer within %u ms",
                         sending->slot->kind.timeout_ms);
    return why->code ? -1 : error_set(why, ERROR_UNAVAILABLE, "the receiver answered nothing");
}

static void release(struct sending *sending)
{
    fetch_hub_close(sending->stream);
    arena_done(&sending->arena);
    sending->slot = NULL;
}

static void rest(struct slot *slot)
{
    slot->rest_until_us = clock_mono_us() + slot->kind.first_pause_us;
}

static void settle(struct sending *sending)
{
    const struct sender_kind *kind = &sending->slot->kind;
    struct error why;
    int r = outcome(sending, &why);

    if (r == 0 && kind->unwanted && kind->unwanted(kind->arg, &sending->item))
        r = error_set(&why, ERROR_CONFLICT, "it was cancelled");
    if (r == 0)
        return;
    if (kind->over(kind->arg, &sending->item, r > 0 ? NULL : &why,
                   clock_wall_us() + pause_after(kind, sending->item.failures)) < 0)
        rest(sending->slot);
    release(sending);
}

static void begin(struct sending *sending, struct slot *slot)
{
    static const struct fetch_hub_events events = {on_head, on_data, on_end};
    const struct sender_kind *kind = &slot->kind;

    sending->until_us = clock_mono_us() + (int64_t)kind->timeout_ms * 1000;
    sending->slot = slot;
    sending->status = 0;
    sending->received = 0;
    sending->over = false;
    sending->why = (struct error){0};
    sending->stream =
        fetch_hub_open(sending->sender->hub,
                       &(struct fetch_request){
                           .method = "POST",
                           .url = sending->item.url,
                           .headers = sending->item.headers,
                           .header_count = sending->item.header_count,
                           .body = sending->item.body,
                           .connect_ms = kind->timeout_ms,
                           .timeout_ms = kind->timeout_ms,
                           .ca_file = kind->ca_file,
                           .reach = sending->item.anywhere ? kind->reach : FETCH_PUBLIC,
                           .repeatable = true,
                       },
                       &events, sending);
}

/* Receivers that are being told, and teams that have as many under way as they may. */
static void find_busy(const struct sender *sender, struct buf *out)
{
    (void)buf_add_char(out, ',');
    for (size_t i = 0; i < SENDER_MAX; i++) {
        const struct sending *sending = &sender->sending[i];
        size_t of_team = 0;

        if (!sending->slot)
            continue;
        for (size_t k = 0; k <= i; k++)
            of_team += sender->sending[k].slot &&
                       str_eq(sender->sending[k].item.team_id, sending->item.team_id);
        if (sending->item.receiver.len)
            (void)buf_printf(out, "%.*s,", STR_ARG(sending->item.receiver));
        if (of_team == SENDER_TEAM_MAX)
            (void)buf_printf(out, "%.*s,", STR_ARG(sending->item.team_id));
    }
}

static void no_later(int64_t *wait_us, int64_t than_us)
{
    if (than_us < *wait_us)
        *wait_us = than_us < 0 ? 0 : than_us;
}

/* True when one was begun; else no later than *wait_us it is asked again. */
static bool begin_of(struct sender *sender, struct slot *slot, struct sending *sending,
                     int64_t *wait_us)
{
    const struct sender_kind *kind = &slot->kind;
    auto_buf struct buf busy = {0};
    int64_t at_us = 0, rest_us = slot->rest_until_us - clock_mono_us();
    struct error err = {0};
    int r;

    if (rest_us > 0) {
        no_later(wait_us, rest_us);
        return false;
    }
    buf_init(&busy, NAMES_MAX);
    find_busy(sender, &busy);
    sending->item = (struct sender_item){0};
    r = kind->next(kind->arg, buf_str(&busy), &sending->arena, &sending->item, &at_us, &err);
    if (r > 0) {
        begin(sending, slot);
        return true;
    }
    arena_done(&sending->arena);
    if (r < 0) {
        log_warn(kind->name, "%s, trying again", err.message);
        rest(slot);
        no_later(wait_us, kind->first_pause_us);
    } else if (at_us) {
        no_later(wait_us, at_us - clock_wall_us());
    }
    return false;
}

static bool slot_open(struct sender *sender, const struct slot *slot)
{
    bool open;

    (void)pthread_mutex_lock(&sender->lock);
    open = slot->used && !slot->leave_by_us;
    (void)pthread_mutex_unlock(&sender->lock);
    return open;
}

/* The kinds take turns, so that one with much to say leaves places to the others. */
static bool begin_one(struct sender *sender, int64_t *wait_us)
{
    struct sending *sending = NULL;

    for (size_t i = 0; i < SENDER_MAX && !sending; i++)
        if (!sender->sending[i].slot)
            sending = &sender->sending[i];
    for (size_t i = 0; sending && i < SENDER_KINDS; i++) {
        struct slot *slot = &sender->slots[(sender->turn + i) % SENDER_KINDS];

        if (slot_open(sender, slot) && begin_of(sender, slot, sending, wait_us)) {
            sender->turn = (sender->turn + i + 1) % SENDER_KINDS;
            return true;
        }
    }
    return false;
}

/* A kind that leaves is gone when nothing of it is under way, or after a moment. */
static void let_leave(struct sender *sender, struct slot *slot, int64_t *wait_us)
{
    int64_t left_us, leave_by_us;
    size_t under_way = 0;

    (void)pthread_mutex_lock(&sender->lock);
    leave_by_us = slot->leave_by_us;
    (void)pthread_mutex_unlock(&sender->lock);
    if (!leave_by_us)
        return;
    left_us = leave_by_us - clock_mono_us();
    for (size_t i = 0; i < SENDER_MAX; i++)
        if (sender->sending[i].slot == slot) {
            if (left_us <= 0)
                release(&sender->sending[i]);
            else
                under_way++;
        }
    if (under_way) {
        no_later(wait_us, left_us);
        return;
    }
    (void)pthread_mutex_lock(&sender->lock);
    *slot = (struct slot){0};
    (void)pthread_cond_broadcast(&sender->wake);
    (void)pthread_mutex_unlock(&sender->lock);
}

/* All that can be done now; says how long until there may be more. */
static int64_t work(struct sender *sender)
{
    int64_t wait_us = IDLE_US;

    for (size_t i = 0; i < SENDER_MAX; i++)
        if (sender->sending[i].slot)
            settle(&sender->sending[i]);
    for (size_t i = 0; i < SENDER_KINDS; i++)
        let_leave(sender, &sender->slots[i], &wait_us);
    while (begin_one(sender, &wait_us))
        ;
    for (size_t i = 0; i < SENDER_MAX; i++)
        if (sender->sending[i].slot)
            no_later(&wait_us, sender->sending[i].until_us - clock_mono_us());
    return wait_us;
}

static void run(void *arg)
{
    struct sender *sender = arg;

    while (thread_wait_until(&sender->thread, clock_mono_us() + work(sender)))
        ;
}

/* ---- any thread ---- */

void sender_add(struct sender *sender, const struct sender_kind *kind)
{
    (void)pthread_mutex_lock(&sender->lock);
    for (size_t i = 0; i < SENDER_KINDS; i++)
        if (!sender->slots[i].used) {
            sender->slots[i] = (struct slot){.kind = *kind, .used = true};
            break;
        }
    (void)pthread_mutex_unlock(&sender->lock);
    sender_kick(sender);
}

void sender_remove(struct sender *sender, const void *arg)
{
    (void)pthread_mutex_lock(&sender->lock);
    for (size_t i = 0; i < SENDER_KINDS; i++) {
        struct slot *slot = &sender->slots[i];

        if (!slot->used || slot->kind.arg != arg)
            continue;
        slot->leave_by_us = clock_mono_us() + LEAVE_US;
        thread_wake(&sender->thread);
        while (slot->used)
            (void)pthread_cond_wait(&sender->wake, &sender->lock);
    }
    (void)pthread_mutex_unlock(&sender->lock);
}

static void sender_free(struct sender *sender)
{
    fetch_hub_free(sender->hub);
    (void)pthread_cond_destroy(&sender->wake);
    (void)pthread_mutex_destroy(&sender->lock);
    free(sender);
}

int sender_open(struct sender **out, struct error *err)
{
    struct sender *sender = xcalloc(1, sizeof(*sender));

    (void)pthread_mutex_init(&sender->lock, NULL);
    cond_init(&sender->wake);
    for (size_t i = 0; i < SENDER_MAX; i++)
        sender->sending[i].sender = sender;
    sender->hub = fetch_hub_new();
    if (!sender->hub ||
        thread_start(&sender->thread, "sender", THREAD_STACK_DEFAULT, run, sender, err) < 0) {
        sender_free(sender);
        return error_set(err, ERROR_INTERNAL, "no threads for webhooks and callbacks");
    }
    *out = sender;
    return 0;
}

void sender_close(struct sender *sender)
{
    if (!sender)
        return;
    thread_stop(&sender->thread);
    sender_free(sender);
}
