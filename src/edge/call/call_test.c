/* Every transition of a call (call_state.c), each brought about by a real request, worker and loop. */
#include <fcntl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/test.h"
#include "edge/call/test/call_site.h"

static char answer[4096]; /* what the client was sent, its begin */

/* ---- what clients do ---- */

static int ask(const char *query, const char *key, const char *rest)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "POST /x?%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s%s%s%s", query,
                   key ? "X-API-Key: " : "", key ? key : "", key ? "\r\n" : "", rest);
    return http_site_ask(&site.http, text);
}

#define BODY    "Content-Length: 2\r\n\r\n{}"
#define EMPTY   "Content-Length: 0\r\n\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"

/* Reads the response and closes. */
static void read_answer(int fd)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 2 * CALL_SITE_LONG);
    http_site_read_all(fd, &text);
    (void)close(fd);
    (void)str_copy(str_n(text.p, text.len < 4000 ? text.len : 4000), answer, sizeof(answer));
}

static bool in_state(enum call_state state)
{
    return __atomic_load_n(&site.traced, __ATOMIC_SEQ_CST) &&
           atomic_load(&site.traced->state) == state;
}

/* Another request of the same team has its share of a lane until give_share(). */
static void take_share(unsigned lane)
{
    CHECK_INT(shares_take(site.desk.lanes[lane].shares, STR("team"), 1), SHARE_TAKEN);
}

static void give_share(unsigned lane)
{
    shares_give(site.desk.lanes[lane].shares, STR("team"), 1);
}

/* The workers of a lane are busy, and its queue is full. */
static void never(struct work *work)
{
    (void)work;
    stay();
}

static void fill(unsigned lane)
{
    static struct work work[2];
    int begun = get(&site.begun);

    work[0] = work[1] = (struct work){.run = never, .loop = site.http.loop};
    CHECK_INT(workers_run(site.desk.lanes[lane].workers, &work[0]), 0);
    WAIT_FOR(get(&site.begun) == begun + 1);
    CHECK_INT(workers_run(site.desk.lanes[lane].workers, &work[1]), 0);
}

/* The connection breaks, on the loop and before anything else happens there. */
static void cut(struct loop_errand *errand)
{
    (void)errand;
    http_abort(site.traced->ex);
}

/* Its turn comes, and before it is there the connection breaks. */
static void give_first_and_cut(struct loop_errand *errand)
{
    give_share(LANE_FIRST);
    cut(errand);
}

static void give_second_and_cut(struct loop_errand *errand)
{
    give_share(LANE_SECOND);
    cut(errand);
}

static void post(void (*fn)(struct loop_errand *errand))
{
    static struct loop_errand errand;

    errand.fn = fn;
    loop_post(site.http.loop, &errand);
}

/* ---- ways through ---- */

/* A request whose handler stays until hold(false). */
static int ask_held(const char *query)
{
    int fd;

    hold(true);
    fd = ask(query, "known", BODY);
    WAIT_FOR(get(&site.begun) == 1);
    return fd;
}

/* A request that waits for a share of that lane. */
static int ask_in_line(unsigned lane, const char *query)
{
    int fd;

    take_share(lane);
    fd = ask(query, "known", BODY);
    WAIT_FOR(in_state(lane == LANE_FIRST ? CALL_WAITING : CALL_MOVING));
    return fd;
}

static void cut_and_release(int fd)
{
    post(cut);
    WAIT_FOR(in_state(CALL_ORPHANED));
    hold(false);
    (void)close(fd);
}

static void no_file_for_the_body(void)
{
    site.desk.file_directory = "/nonexistent";
    read_answer(ask("file", "known", CHUNKED));
    site.desk.file_directory = "/tmp";
}

static void gone_while_key_is_looked_up(void)
{
    int fd;

    hold(true);
    fd = ask("", "slow", BODY);
    WAIT_FOR(in_state(CALL_ASKING));
    cut_and_release(fd);
}

static void gone_inside_its_body(void)
{
    int fd = ask("", "known", "Content-Length: 100\r\n\r\n{");

    WAIT_FOR(in_state(CALL_READING));
    (void)close(fd);
}

static void waits_for_its_turn(void)
{
    int fd = ask_in_line(LANE_FIRST, "");

    give_share(LANE_FIRST);
    read_answer(fd);
}

static void gone_in_line(void)
{
    int fd = ask_in_line(LANE_FIRST, "");

    post(cut);
    WAIT_FOR(get(&site.over) == 1);
    give_share(LANE_FIRST);
    (void)close(fd);
}

static void gone_when_its_turn_comes(void)
{
    int fd = ask_in_line(LANE_FIRST, "");

    post(give_first_and_cut);
    WAIT_FOR(get(&site.over) == 1);
    (void)close(fd);
}

static void not_begun_for_who_left_in_line(void)
{
    int fd = ask_in_line(LANE_FIRST, "only");

    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    give_share(LANE_FIRST);
    read_answer(fd);
}

static void queue_is_full(void)
{
    hold(true);
    fill(LANE_FIRST);
    read_answer(ask("", "known", BODY));
    hold(false);
}

static void line_is_full(void)
{
    auto_close int other = -1;

    take_share(LANE_FIRST);
    other =
        http_site_ask(&site.http, "POST /other HTTP/1.1\r\nHost: x\r\nX-API-Key: known\r\n" BODY);
    WAIT_FOR(get(&site.admitted) == 1);
    read_answer(ask("", "known", BODY));
    give_share(LANE_FIRST);
}

static void gone_while_it_runs(void)
{
    cut_and_release(ask_held("stay1"));
}

static void gone_and_unwanted(void)
{
    int fd = ask("patient", "known", BODY);

    WAIT_FOR(get(&site.begun) == 1);
    (void)close(fd);
}

static void server_stops_while_it_runs(void)
{
    int fd = ask("patient", "known", BODY);

    WAIT_FOR(get(&site.begun) == 1);
    atomic_store(&site.desk.stopping, true);
    read_answer(fd);
    atomic_store(&site.desk.stopping, false);
}

static void server_stops_while_it_waits(void)
{
    int fd = ask_in_line(LANE_FIRST, "patient");

    atomic_store(&site.desk.stopping, true);
    give_share(LANE_FIRST);
    read_answer(fd);
    atomic_store(&site.desk.stopping, false);
}

static void gone_with_a_stream_unread(void)
{
    int fd = ask("stream", "known", BODY);

    WAIT_FOR(get(&site.begun) == 1);
    (void)close(fd);
}

static void made_and_gone_while_it_runs(void)
{
    cut_and_release(ask_held("stay1&made"));
}

static void made_for_who_closed_its_side(void)
{
    int fd = ask_held("stay1&made");

    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    hold(false);
    read_answer(fd);
}

static void gone_while_it_is_undone(void)
{
    int fd = ask_held("stay1&made");

    hold_undo(true);
    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    hold(false);
    WAIT_FOR(in_state(CALL_UNDOING));
    cut_and_release(fd);
    hold_undo(false);
}

static void made_and_gone_before_all_is_read(void)
{
    int fd = ask("made&long", "known", BODY);

    WAIT_FOR(in_state(CALL_ANSWERING));
    (void)close(fd);
}

static void gone_in_the_second_line(void)
{
    int fd = ask_in_line(LANE_SECOND, "move");

    post(cut);
    WAIT_FOR(get(&site.over) == 1);
    give_share(LANE_SECOND);
    (void)close(fd);
}

static void gone_when_its_second_turn_comes(void)
{
    int fd = ask_in_line(LANE_SECOND, "move");

    post(give_second_and_cut);
    WAIT_FOR(get(&site.over) == 1);
    (void)close(fd);
}

static void second_queue_is_full(void)
{
    hold(true);
    fill(LANE_SECOND);
    read_answer(ask("move", "known", BODY));
    hold(false);
}

static void moves_without_its_client(void)
{
    cut_and_release(ask_held("stay1&move"));
}

static void no_second_line_without_its_client(void)
{
    int fd = ask_held("stay1&move");

    take_share(LANE_SECOND);
    cut_and_release(fd);
    WAIT_FOR(get(&site.over) == 1);
    give_share(LANE_SECOND);
}

static const struct way {
    const char *name, *path;
    const char *begins; /* the response; NULL = none is read */
    int finds, handled, stepped, killed;
    void (*go)(void);
    const char *query, *key, *rest; /* go NULL: of the only request */
} ways[] = {
#define RUN                       "running answering over"
#define SEND(query_, key_, rest_) .query = (query_), .key = (key_), .rest = (rest_)
#define GO(function)              .go = (function)
    {"body to memory", "reading waiting " RUN, "HTTP/1.1 200", 0, 1, SEND("", "known", BODY)},
    {"body to a file", "reading waiting " RUN, "HTTP/1.1 200", 0, 1,
     SEND("file", "known", CHUNKED)},
    {"response before the body", "waiting " RUN, "HTTP/1.1 200", 0, 1,
     SEND("raw", "known", "Content-Length: 100000\r\n\r\n{")},
    {"no key", "answering over", "HTTP/1.1 401", SEND("", NULL, EMPTY)},
    {"no key is needed", "waiting " RUN, "HTTP/1.1 200", 0, 1, SEND("public", NULL, EMPTY)},
    {"key is looked up", "asking reading waiting " RUN, "HTTP/1.1 200", 1, 1,
     SEND("", "unseen", BODY)},
    {"key is looked up, no body", "asking waiting " RUN, "HTTP/1.1 200", 1, 1,
     SEND("raw", "unseen", EMPTY)},
    {"wrong key", "asking answering over", "HTTP/1.1 401", 1, SEND("", "wrong", BODY)},
    {"body too long", "reading over", "HTTP/1.1 413",
     SEND("", "known", "Content-Length: 5000\r\n\r\n")},
    {"deadline passes inside the body", "reading over", "HTTP/1.1 408",
     SEND("", "known", "Content-Length: 100\r\n\r\n{")},
    {"not admitted", "reading waiting answering over", "HTTP/1.1 429",
     SEND("refused", "known", BODY)},
    {"handler fails", "reading waiting " RUN, "HTTP/1.1 409", 0, 1, SEND("fail", "known", BODY)},
    {"made and read", "reading waiting " RUN, "HTTP/1.1 200", 0, 1,
     SEND("made&long", "known", BODY)},
    {"moves", "reading waiting running moving " RUN, "HTTP/1.1 200", 0, 1, 1,
     SEND("move", "known", BODY)},
    {"moves with a stale key", "reading waiting running moving " RUN, "HTTP/1.1 200", 1, 1, 1,
     SEND("move", "stale", BODY)},
    {"moves with an unseen key", "asking reading waiting running moving " RUN, "HTTP/1.1 200", 1, 1,
     1, SEND("move", "unseen", BODY)},
    {"no file for the body", "reading answering over", "HTTP/1.1 404", GO(no_file_for_the_body)},
    {"gone while key is looked up", "asking orphaned over", NULL, 1,
     GO(gone_while_key_is_looked_up)},
    {"gone inside its body", "reading over", NULL, GO(gone_inside_its_body)},
    {"waits for its turn", "reading waiting " RUN, "HTTP/1.1 200", 0, 1, GO(waits_for_its_turn)},
    {"gone in line", "reading waiting over", NULL, GO(gone_in_line)},
    {"gone when its turn comes", "reading waiting orphaned over", NULL,
     GO(gone_when_its_turn_comes)},
    {"not begun for who left in line", "reading waiting answering over", "HTTP/1.1 400",
     GO(not_begun_for_who_left_in_line)},
    {"queue is full", "reading waiting answering over", "HTTP/1.1 503", GO(queue_is_full)},
    {"line is full", "reading waiting answering over", "HTTP/1.1 429", 0, 1, GO(line_is_full)},
    {"gone while it runs", "reading waiting running orphaned over", NULL, 0, 1,
     GO(gone_while_it_runs)},
    {"gone and unwanted", "reading waiting running orphaned over", NULL, 0, 1,
     GO(gone_and_unwanted)},
    {"server stops while it runs", "reading waiting " RUN, "HTTP/1.1 503", 0, 1,
     GO(server_stops_while_it_runs)},
    {"server stops while it waits", "reading waiting " RUN, "HTTP/1.1 503",
     GO(server_stops_while_it_waits)},
    {"gone with a stream unread", "reading waiting running orphaned over", NULL, 0, 1,
     GO(gone_with_a_stream_unread)},
    {"made and gone while it runs", "reading waiting running orphaned over", NULL, 0, 1, 0, 1,
     GO(made_and_gone_while_it_runs)},
    {"made for who closed its side", "reading waiting running undoing answering over",
     "HTTP/1.1 400", 0, 1, 0, 1, GO(made_for_who_closed_its_side)},
    {"gone while it is undone", "reading waiting running undoing orphaned over", NULL, 0, 1, 0, 1,
     GO(gone_while_it_is_undone)},
    {"made and gone before all is read", "reading waiting running answering orphaned over", NULL, 0,
     1, 0, 1, GO(made_and_gone_before_all_is_read)},
    {"gone in the second line", "reading waiting running moving over", NULL, 0, 1,
     GO(gone_in_the_second_line)},
    {"gone when its second turn comes", "reading waiting running moving orphaned over", NULL, 0, 1,
     GO(gone_when_its_second_turn_comes)},
    {"second queue is full", "reading waiting running moving answering over", "HTTP/1.1 503", 0, 1,
     GO(second_queue_is_full)},
    {"moves without its client", "reading waiting running orphaned over", NULL, 0, 1, 1,
     GO(moves_without_its_client)},
    {"no second line without its client", "reading waiting running orphaned over", NULL, 0, 1,
     GO(no_second_line_without_its_client)},
};

static void check_way(const struct way *way)
{
    if (strcmp(site.path, way->path) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", way->name, site.path);
    if (way->begins && !str_starts(str_of(answer), str_of(way->begins)))
        test_fail(__FILE__, __LINE__, "%s: '%s'", way->name, answer);
    if (site.finds != way->finds || site.handled != way->handled || site.stepped != way->stepped ||
        site.killed != way->killed)
        test_fail(__FILE__, __LINE__, "%s: %d finds, %d handled, %d stepped, %d killed", way->name,
                  site.finds, site.handled, site.stepped, site.killed);
    if (site.admitted != site.left)
        test_fail(__FILE__, __LINE__, "%s: %d admitted, %d left", way->name, site.admitted,
                  site.left);
    for (size_t i = LANE_FIRST; i <= LANE_SECOND; i++)
        if (shares_held(site.desk.lanes[i].shares))
            test_fail(__FILE__, __LINE__, "%s: lane %zu: a share is held", way->name, i);
}

static void go(const struct way *way)
{
    int calls = way->go == line_is_full ? 2 : 1;

    site.traced = NULL;
    site.path[0] = answer[0] = '\0';
    site.finds = site.handled = site.stepped = site.admitted = site.left = 0;
    site.killed = site.begun = site.over = 0;
    if (way->go)
        way->go();
    else
        read_answer(ask(way->query, way->key, way->rest));
    WAIT_FOR(get(&site.over) == calls);
    /* Workers that were kept for it are free again. */
    WAIT_FOR(workers_waiting(site.desk.lanes[LANE_FIRST].workers) == 0 &&
             workers_waiting(site.desk.lanes[LANE_SECOND].workers) == 0);
    check_way(way);
}

TEST_TIMEOUT(calls_go_only_where_the_table_says, 60)
{
    call_site_start();
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        go(&ways[i]);
    for (int from = 0; from < CALL_STATES; from++)
        for (int to = 0; to < CALL_STATES; to++)
            if (site.seen[from][to] != call_state_may(from, to))
                test_fail(__FILE__, __LINE__, "%d to %d: %s", from, to,
                          site.seen[from][to] ? "not in the table" : "no request goes there");
}

TEST(bodies_in_descriptor_0_are_sent_and_closed)
{
    call_site_start();
    read_answer(ask("bytes", "known", BODY));
    CHECK(str_find_str(str_of(answer), STR("\r\n\r\nsome bytes")) > 0);
    WAIT_FOR(fcntl(0, F_GETFD) < 0);
}
