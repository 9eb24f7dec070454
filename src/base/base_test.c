#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/env_name.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/path.h"
#include "base/ready_ports.h"
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(error_messages_are_prefixed)
{
    struct error err;

    CHECK_INT(error_set_errno(&err, ENOSPC, "write '%s'", "x"), -1);
    CHECK_INT(err.code, ERROR_NO_SPACE);
    (void)error_prefix(&err, "create sandbox '%s'", "i1");
    CHECK_STR(str_of(err.message), "create sandbox 'i1': write 'x': No space left on device");
}

TEST(long_prefixes_do_not_cut_off_the_cause_of_an_error)
{
    struct error err;
    char longer[3000], once[sizeof(err.message)];
    struct str message;

    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    (void)error_set_errno(&err, ENOSPC, "write '%s'", longer);
    CHECK(str_starts(str_of(err.message), STR("write 'aaa")));
    CHECK(str_ends(str_of(err.message), STR("aaa: No space left on device")));
    (void)error_set(&err, ERROR_INVALID, "%.280s: no such key", longer);
    (void)error_prefix(&err, "%s", longer);
    CHECK(str_ends(str_of(err.message), STR("aaa: no such key")));
    memcpy(once, err.message, sizeof(once));
    for (int i = 0; i < 10; i++) {
        (void)error_prefix(&err, "level %d", i);
        message = str_of(err.message);
        CHECK_INT(message.len, sizeof(err.message) - 1);
        CHECK(str_ends(message, str_n(strstr(once, "…"), strlen(strstr(once, "…")))));
        CHECK(str_find_str(message, STR("…")) >= 0);
        CHECK(!strstr(strstr(err.message, "…") + 1, "…"));
    }
    CHECK(str_starts(message, STR("level 9: level 8: ")));
}

TEST(long_error_messages_are_cut_between_characters)
{
    struct error err;
    char longer[3000];

    for (size_t shift = 0; shift < 4; shift++) {
        memset(longer, 'x', shift);
        for (size_t i = shift; i < sizeof(longer) - 4; i += 3)
            memcpy(longer + i, "€", sizeof("€"));
        (void)error_set(&err, ERROR_INVALID, "%s", longer);
        CHECK(str_valid_utf8(str_of(err.message)));
        (void)error_prefix(&err, "%.48s€", longer + shift);
        (void)error_prefix(&err, "%.300s", longer + shift);
        CHECK(str_valid_utf8(str_of(err.message)));
        CHECK(strlen(err.message) > sizeof(err.message) - 12);
    }
}

TEST(numbers_reject_junk_and_overflow)
{
    int64_t i;
    uint64_t u;

    CHECK(str_to_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    CHECK(str_to_i64(STR("9223372036854775807"), &i) && i == INT64_MAX);
    CHECK(!str_to_i64(STR("9223372036854775808"), &i));
    CHECK(str_to_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    CHECK(!str_to_u64(STR("18446744073709551616"), &u));
    CHECK(!str_to_u64(STR(""), &u));
    CHECK(!str_to_u64(STR("1 "), &u));
    CHECK(!str_to_i64(STR("-"), &i));
    CHECK(!str_to_i64(STR("+1"), &i));
}

TEST(lower_case_changes_ascii_letters_only)
{
    auto_arena struct arena arena = {0};
    char text[] = "MiXed-\xc3\x84[@`{09";

    str_lower(str_of(text), text);
    CHECK(str_is(str_of(text), "mixed-\xc3\x84[@`{09"));
    CHECK(str_is(arena_lower(&arena, STR("AZaz")), "azaz"));
    CHECK(arena_lower(&arena, STR_NONE).len == 0);
}

TEST(tokens_are_those_of_rfc_9110)
{
    CHECK(str_is_token(STR("X-Name_1!#$%&'*+.^`|~")));
    CHECK(!str_is_token(STR("")));
    for (int c = 0; c < 256; c++)
        CHECK(ascii_is_token((char)c) ==
              (c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c)));
    CHECK(!str_is_token(str_n("a\0b", 3)));
}

TEST(uuids_of_any_version_and_case_are_recognised)
{
    char made[UUID_SIZE];

    id_uuid(made);
    CHECK(id_is_uuid(str_of(made)));
    CHECK(id_is_uuid(STR("00000000-0000-0000-0000-00000000000F")));
    CHECK(!id_is_uuid(STR("00000000-0000-0000-0000-0000000000000")));
    CHECK(!id_is_uuid(STR("00000000-0000-0000-0000-00000000000g")));
    CHECK(!id_is_uuid(STR("0000000000-00-0000-0000-000000000000")));
    CHECK(!id_is_uuid(STR("")));
}

TEST(split_walks_all_parts)
{
    struct str rest = STR("a,,b");

    CHECK_STR(str_split(&rest, ','), "a");
    CHECK_STR(str_split(&rest, ','), "");
    CHECK_STR(str_split(&rest, ','), "b");
    CHECK(rest.p == NULL);
}

TEST(utf8_rejects_overlong_and_surrogates)
{
    CHECK(str_valid_utf8(STR("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")));
    CHECK(!str_valid_utf8(STR("\xc0\xaf")));
    CHECK(!str_valid_utf8(STR("\xed\xa0\x80")));
    CHECK(!str_valid_utf8(STR("\xf4\x90\x80\x80")));
    CHECK(!str_valid_utf8(STR("\xe2\x82")));
}

TEST(buf_stops_at_its_maximum)
{
    auto_buf struct buf buf = {0};

    buf_init(&buf, 8);
    CHECK(buf_add(&buf, "12345678", 8));
    CHECK(!buf_add_char(&buf, '9'));
    CHECK(buf.overflowed);
    CHECK_STR(buf_str(&buf), "12345678");
    buf_drop(&buf, 6);
    CHECK_STR(buf_str(&buf), "78");
    CHECK(buf_printf(&buf, "%d", 123456));
    CHECK(!buf_printf(&buf, "%d", 1));
}

/* An account of 1 MB. */
static size_t account_held;

static bool account_take(struct buf_account *account, size_t bytes)
{
    (void)account;
    if (account_held + bytes > 1000000)
        return false;
    account_held += bytes;
    return true;
}

static void account_give(struct buf_account *account, size_t bytes)
{
    (void)account;
    account_held -= bytes;
}

static int account_refuse(struct buf_account *account, struct error *err)
{
    (void)account;
    return error_set(err, ERROR_QUOTA, "1 MB");
}

TEST(charged_buf_stops_at_the_limit_of_its_account)
{
    struct buf_account account = {account_take, account_give, account_refuse, 0};
    auto_buf struct buf one = {0}, other = {0};
    static const char piece[50000];
    struct error err = {0};

    CHECK(buf_account_enter(&account) == NULL);
    buf_init_charged(&one, 100000000);
    buf_init_charged(&other, 600000);
    CHECK(buf_account_enter(NULL) == &account);
    CHECK(buf_add(&one, piece, sizeof(piece)));
    CHECK_INT(account_held, 0); /* small ones are not counted */
    while (buf_add(&one, piece, sizeof(piece)))
        continue;
    CHECK(one.refused && one.overflowed);
    CHECK_INT(buf_refuse(&one, &err), -1);
    CHECK_INT(err.code, ERROR_QUOTA);
    CHECK(account_held >= one.len && account_held <= 1000000);
    while (buf_add(&other, piece, sizeof(piece)))
        continue;
    CHECK(other.refused);
    buf_done(&one);
    buf_clear(&other);
    while (buf_add(&other, piece, sizeof(piece)))
        continue;
    CHECK(other.overflowed && !other.refused);
    CHECK_INT(other.len, 600000);
    CHECK_INT(account_held, 600001); /* not twice what is needed */
    free(buf_take(&other));
    CHECK_INT(account_held, 600001);
    buf_account_done(&account);
    CHECK_INT(account_held, 0);
}

TEST(memory_is_reserved_until_the_end_of_its_account)
{
    struct buf_account account = {account_take, account_give, account_refuse, 0};
    struct error err = {0};

    CHECK_INT(buf_account_reserve(2000000, &err), 0); /* without an account nothing is counted */
    (void)buf_account_enter(&account);
    CHECK_INT(buf_account_reserve(600000, &err), 0);
    CHECK_INT(buf_account_reserve(600000, &err), -1);
    CHECK_INT(err.code, ERROR_QUOTA);
    buf_account_return(100000);
    CHECK_INT(account_held, 500000);
    (void)buf_account_enter(NULL);
    buf_account_return(100000);
    CHECK_INT(account_held, 500000);
    buf_account_done(&account);
    CHECK_INT(account_held, 0);
}

TEST(map_keeps_many_keys)
{
    struct map map;
    size_t seen = 0;
    struct map_entry *entry;

    map_init(&map);
    for (size_t i = 0; i < 5000; i++) {
        char key[16];

        (void)snprintf(key, sizeof(key), "key%zu", i);
        CHECK(map_put(&map, str_of(key), (void *)(i + 1)) == NULL);
    }
    CHECK(map_get(&map, STR("key4999")) == (void *)5000);
    CHECK(map_put(&map, STR("key1"), (void *)7) == (void *)2);
    CHECK(map_remove(&map, STR("key2")) == (void *)3);
    CHECK(map_remove(&map, STR("key2")) == NULL);
    map_for_each (&map, entry)
        seen++;
    CHECK_INT(seen, 4999);
    map_done(&map);
}

TEST(base64_round_trips_every_length)
{
    unsigned char bytes[67];

    random_bytes(bytes, sizeof(bytes));
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        char text[BASE64_LEN(sizeof(bytes))];
        auto_buf struct buf back = {0};

        buf_init(&back, 1000);
        base64_encode(text, bytes, len);
        CHECK(base64_decode(str_n(text, BASE64_LEN(len)), &back));
        CHECK(str_eq(buf_str(&back), str_n(bytes, len)));
    }
}

/* One digit at a time, straight from the definition. */
static char slow_digit(const unsigned char *bytes, size_t len, size_t index)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned value = 0;

    if (index * 6 >= len * 8)
        return '=';
    for (size_t bit = index * 6; bit < index * 6 + 6; bit++)
        value = value << 1 | (bit < len * 8 ? (unsigned)bytes[bit / 8] >> (7 - bit % 8) & 1 : 0);
    return digits[value];
}

/* Exact allocations, so that a sanitizer sees a byte too many. */
TEST(base64_is_what_the_definition_says)
{
    for (size_t len = 1; len < 700; len += len < 100 ? 1 : 37) {
        auto_free unsigned char *bytes = xmalloc(len);
        auto_free char *text = xmalloc(BASE64_LEN(len));

        random_bytes(bytes, len);
        base64_encode(text, bytes, len);
        for (size_t i = 0; i < BASE64_LEN(len); i++)
            CHECK_INT(text[i], slow_digit(bytes, len, i));
    }
}

TEST(base64_rejects_junk)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 100);
    CHECK(!base64_decode(STR("a"), &out));
    CHECK(!base64_decode(STR("ab!d"), &out));
    CHECK(!base64_decode(STR("ab=d"), &out));
}

TEST(url_decoding_checks_escapes)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 100);
    CHECK(url_decode(STR("a%20b%2F+"), true, &out));
    CHECK_STR(buf_str(&out), "a b/ ");
    CHECK(!url_decode(STR("%2"), true, &out));
    CHECK(!url_decode(STR("%zz"), true, &out));
    buf_clear(&out);
    CHECK(url_query_get(STR("x=1&path=%2Ftmp"), "path", &out));
    CHECK_STR(buf_str(&out), "/tmp");
    CHECK(!url_query_get(STR("x=1"), "y", &out));
}

TEST(deadline_inside_another_ends_with_the_earlier_one)
{
    int64_t outer_us = clock_deadline(10, 0);

    CHECK_INT(clock_deadline(20, outer_us), outer_us);
    CHECK(clock_deadline(5, outer_us) < outer_us);
    CHECK_INT(clock_left_ms(0, 700), 700);
    CHECK_INT(clock_left_ms(outer_us, 700), 700);
    CHECK(clock_left_ms(outer_us, 60000) > 8000 && clock_left_ms(outer_us, 60000) <= 10000);
    CHECK_INT(clock_left_ms(clock_mono_us() - 1, 700), 0);
}

TEST(time_round_trips)
{
    char text[CLOCK_TEXT_SIZE];
    int64_t us;

    clock_format(1786000000123456, text);
    CHECK(clock_parse(str_of(text), &us));
    CHECK_INT(us, 1786000000123456);
    CHECK(clock_parse(STR("2026-08-01T02:00:00+02:00"), &us));
    clock_format(us, text);
    CHECK_STR(str_of(text), "2026-08-01T00:00:00.000000Z");
    CHECK(clock_parse(STR("2026-08-01T00:00:00.123456789Z"), &us));
    CHECK_INT(us % 1000000, 123456);
    CHECK(clock_parse(STR("1969-12-31T23:59:59.250Z"), &us));
    CHECK_INT(us, -750000);
    clock_format(us, text);
    CHECK_STR(str_of(text), "1969-12-31T23:59:59.250000Z");
    CHECK(!clock_parse(STR("2026-08-01"), &us));
    CHECK(!clock_parse(STR("2026-13-01T00:00:00Z"), &us));
    CHECK(!clock_parse(STR("2026-08-01T00:00:00Zx"), &us));
}

TEST(ids_have_one_shape)
{
    char id[ID_SIZE];

    for (int i = 0; i < 100; i++) {
        id_make(id);
        CHECK(id_valid(str_of(id)));
    }
    CHECK(!id_valid(STR("../../../etc/passwd1")));
    CHECK(!id_valid(STR("")));
    CHECK(!id_valid(STR("iABCDEFGHIJKLMNOPQRS")));
}

TEST(descriptors_travel_and_extra_ones_are_closed)
{
    int pair[2], fds[3], got[2];
    size_t count = 2;
    char c;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    for (int i = 0; i < 3; i++)
        CHECK((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    CHECK_INT(fd_send(pair[0], "x", 1, fds, 2), 0);
    CHECK_INT(fd_recv(pair[1], &c, 1, got, &count, 0), 1);
    CHECK_INT(count, 2);
    CHECK(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    CHECK_INT(fd_send(pair[0], "x", 1, fds, 3), 0);
    CHECK_INT(fd_recv(pair[1], &c, 1, got, &count, 0), -EMSGSIZE);
    CHECK_INT(fd_send(pair[0], "xy", 2, NULL, 0), 0);
    CHECK_INT(fd_recv(pair[1], &c, 1, NULL, NULL, 0), -EMSGSIZE);
}

TEST(paths_stay_beneath_their_root)
{
    char dir[] = "/tmp/qs-path-XXXXXX";
    int root, fd;

    CHECK(mkdtemp(dir));
    root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(symlinkat("/etc", root, "abs") == 0);
    CHECK(symlinkat("../../../../etc", root, "rel") == 0);
    CHECK_INT(path_open_in_root(root, "abs/passwd", O_RDONLY, 0), -ENOENT);
    CHECK_INT(path_open_in_root(root, "rel/passwd", O_RDONLY, 0), -ENOENT);
    CHECK_INT(path_open_in_root(root, "../../etc/passwd", O_RDONLY, 0), -ENOENT);
    fd = path_open_in_root(root, "/inside", O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    CHECK(faccessat(root, "inside", F_OK, 0) == 0);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
    CHECK(access("/etc/passwd", F_OK) == 0);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(remove_tree_handles_nested_directories)
{
    char dir[] = "/tmp/qs-tree-XXXXXX";
    char deep[512];

    CHECK(mkdtemp(dir));
    (void)snprintf(deep, sizeof(deep), "%s/a/b/c/d/e", dir);
    CHECK_INT(path_make_dirs(deep, 0700), 0);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
    CHECK(access(dir, F_OK) < 0);
}

TEST(arena_memory_is_zeroed_and_aligned)
{
    auto_arena struct arena arena = {0};
    char *big = arena_alloc(&arena, 100000);

    CHECK(big[99999] == 0);
    for (size_t i = 1; i < 100; i++)
        CHECK_INT((uintptr_t)arena_alloc(&arena, i) % _Alignof(max_align_t), 0);
    CHECK_STR(str_of(arena_printf(&arena, "%s-%d", "a", 5)), "a-5");
}

static char deferred_order[3];

static void defer_note(void *arg)
{
    deferred_order[strlen(deferred_order)] = *(char *)arg;
}

TEST(arena_defers)
{
    struct arena arena = {0};
    char *first = arena_alloc(&arena, 1), *second = arena_alloc(&arena, 1);

    *first = 'a';
    *second = 'b';
    arena_defer(&arena, defer_note, first);
    arena_defer(&arena, defer_note, second);
    arena_done(&arena);
    CHECK_STR(str_of(deferred_order), "ba");
    arena_done(&arena);
    CHECK_STR(str_of(deferred_order), "ba");
}

/* A log that nobody reads holds nobody, and says later what it left out. */
TEST(log_without_a_reader)
{
    auto_close int saved = dup(STDERR_FILENO), from = -1;
    int64_t begin_ms = clock_mono_ms(), took_ms;
    char filler[900], text[65536], last[512];
    int ends[2];
    ssize_t n;

    memset(filler, 'x', sizeof(filler));
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    from = ends[0];
    CHECK(fcntl(from, F_SETFL, O_NONBLOCK) == 0);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    (void)close(ends[1]);
    for (int i = 0; i < 200; i++)
        log_error("test", "%.*s", (int)sizeof(filler), filler);
    took_ms = clock_mono_ms() - begin_ms;
    do
        n = read(from, text, sizeof(text));
    while (n > 0);
    log_error("test", "back");
    n = read(from, last, sizeof(last) - 1);
    CHECK(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
    CHECK(took_ms < 5000);
    CHECK(n > 0);
    last[n > 0 ? n : 0] = '\0';
    CHECK(strstr(last, " lines are missing here") != NULL);
    CHECK(strstr(last, "test: back\n") != NULL);
}

TEST(wide_memory_begins_in_the_middle_of_a_page)
{
    for (size_t size = 1; size < 300000; size = size * 7 + 1) {
        char *p = xmalloc_wide(size);

        CHECK_INT((uintptr_t)p % 4096, 2048);
        memset(p, 1, size);
        free_wide(p);
    }
    free_wide(NULL);
}

TEST(ports_as_a_ready_command)
{
    const uint16_t ports[] = {80, 8000, 65535};
    uint16_t read[READY_PORTS_MAX];
    auto_buf struct buf text = {0};
    struct str whole;

    buf_init(&text, 4096);
    ready_ports_write(&text, ports, 3);
    whole = buf_str(&text);
    CHECK_INT(ready_ports_read(whole, read), 3);
    CHECK(memcmp(read, ports, sizeof(ports)) == 0);
    /* Templates that are stored have this text. */
    CHECK_INT(ready_ports_read(
                  STR("n=0; until grep -qE ':(0050|1F40) [0-9A-F]+:0000 0A' /proc/net/tcp "
                      "/proc/net/tcp6 2>/dev/null || [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; "
                      "done"),
                  read),
              2);
    CHECK_INT(read[1], 8000);
    CHECK_INT(ready_ports_read(str_skip(whole, 1), read), 0);
    CHECK_INT(ready_ports_read(str_n(whole.p, whole.len - 1), read), 0);
    CHECK_INT(ready_ports_read(STR("true"), read), 0);
    CHECK_INT(ready_ports_read(STR(""), read), 0);
    buf_done(&text);
    buf_init(&text, 4096);
    ready_ports_write(&text, ports, 0);
    CHECK_INT(ready_ports_read(buf_str(&text), read), 0);
    buf_done(&text);
    buf_init(&text, 4096);
    ready_ports_write(&text, (uint16_t[READY_PORTS_MAX + 1]){1}, READY_PORTS_MAX + 1);
    CHECK_INT(ready_ports_read(buf_str(&text), read), 0);
}

TEST(names_of_environment_variables)
{
    static const char *const good[] = {"A", "_a1", "npm_config_//host/:_token", "INPUT_WITH SPACE",
                                       "\xc3\xa4"};
    char shown[ENV_NAME_SHOWN_SIZE], longest[ENV_NAME_MAX + 1];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK(env_name_ok(str_of(good[i])));
    FAILS(env_name_check("env", STR(""), &err), ERROR_INVALID, "env: '' is not a valid name");
    FAILS(env_name_check("env", STR("A=B"), &err), ERROR_INVALID, "env: 'A=B' is not");
    FAILS(env_name_check("env", STR("A\nB"), &err), ERROR_INVALID, "env: 'A\\nB' is not");
    FAILS(env_name_check("env", STR("A\0B"), &err), ERROR_INVALID, "env: 'A\\x00B' is not");
    FAILS(env_name_check("env", STR("'\x7f"), &err), ERROR_INVALID, "env: '\\'\\x7f' is not");
    memset(longest, 'x', sizeof(longest));
    CHECK(env_name_ok(str_n(longest, ENV_NAME_MAX)));
    CHECK(!env_name_ok(str_n(longest, ENV_NAME_MAX + 1)));
    memset(longest, '\n', sizeof(longest));
    env_name_show(str_n(longest, sizeof(longest)), shown);
    CHECK(str_ends(str_of(shown), STR("\\n...")));
}
