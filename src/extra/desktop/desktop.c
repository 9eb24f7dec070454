/* Acts become one call of xdotool each, so that pointer and keys never come apart; what is typed goes by standard input,
 * where nothing has to be quoted. */
#include "extra/desktop/desktop.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"

enum {
    SHOT_MAX = 16 << 20,
    TIMEOUT_MS = 30000,
    COUNT_MAX = 100,
    DELAY_MAX_MS = 1000,
    LETTERS_MAX = 64
};

/* One that takes a shot quickly comes with the template; scrot is what others have. */
static const char shot_script[] =
    "command -v desktop-screenshot >/dev/null && exec desktop-screenshot; "
    "command -v scrot >/dev/null || { echo 'neither desktop-screenshot nor scrot is there' >&2; "
    "exit 127; }; "
    "f=$(mktemp -u /tmp/shot-XXXXXXXX.png) && scrot --pointer \"$f\" && cat \"$f\"; r=$?; rm -f "
    "\"$f\"; exit $r";

/* Without a locale xdotool takes letters beyond ASCII for garbage. */
static json_t *environment(struct str display)
{
    return json_pack("{s:s%, s:s}", "DISPLAY", display.len ? display.p : ":0",
                     display.len ? display.len : (size_t)2, "LC_ALL", "C.UTF-8");
}

static int check_display(struct str display, struct error *err)
{
    bool good = display.len <= 8 && (!display.len || (display.len > 1 && display.p[0] == ':'));

    for (size_t i = 1; good && i < display.len; i++)
        good = (display.p[i] >= '0' && display.p[i] <= '9') || display.p[i] == '.';
    return good ? 0 : error_set(err, ERROR_INVALID, "'display' must be like \":0\"");
}

/* Runs it and says why when it went wrong. */
static int run(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
               const struct runtime_command *command, struct buf *out, struct error *err)
{
    struct runtime_result result = {0};
    struct str said;
    int r = runtime_exec(runtime, caller, id, command, &result, err);

    if (r == 0 && (result.exit_code != 0 || result.timed_out)) {
        said = result.err.len ? str_trim(buf_str(&result.err)) : STR("no answer in time");
        if (said.len > 300)
            said.len = 300;
        r = error_set(err, ERROR_CONFLICT,
                      "the sandbox's screen did not take it (%.*s): it needs the template "
                      "'desktop', or one with a running X "
                      "server, xdotool and scrot",
                      STR_ARG(said));
    } else if (r == 0 && (result.truncated || (out && result.out.len > out->max))) {
        r = error_set(err, ERROR_LIMIT, "the picture is larger than %zu MiB",
                      (out && out->max < SHOT_MAX ? out->max : (size_t)SHOT_MAX) >> 20);
    } else if (r == 0 && out) {
        buf_done(out);
        *out = result.out;
        result.out = (struct buf){0};
    }
    runtime_result_done(&result);
    return r;
}

int desktop_screenshot(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                       struct str display, struct buf *out, struct error *err)
{
    static const char magic[] = "\x89PNG\r\n\x1a\n";
    auto_json json_t *argv = json_pack("[s, s, s]", "/bin/sh", "-c", shot_script);
    auto_json json_t *env = environment(display);
    struct runtime_command command = {
        .argv = argv, .env = env, .timeout_ms = TIMEOUT_MS, .output_limit = SHOT_MAX, .own = true};

    if (check_display(display, err) < 0 || run(runtime, caller, id, &command, out, err) < 0)
        return -1;
    if (out->len < sizeof(magic) - 1 || memcmp(out->p, magic, sizeof(magic) - 1) != 0)
        return error_set(err, ERROR_CONFLICT, "what the sandbox gave is no picture");
    return 0;
}

/* ---- acts ---- */

static void add(json_t *argv, const char *word)
{
    (void)json_array_append_new(argv, json_string(word));
}

static void add_number(json_t *argv, int number)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", number);
    add(argv, text);
}

static int move_to(json_t *argv, int x, int y, struct error *err)
{
    if (x < 0 || y < 0 || x > DESKTOP_SIDE_MAX || y > DESKTOP_SIDE_MAX)
        return error_set(err, ERROR_INVALID, "'x' and 'y' must both be given, from 0 to %d",
                         DESKTOP_SIDE_MAX);
    add(argv, "mousemove");
    add_number(argv, x);
    add_number(argv, y);
    return 0;
}

static int move_if_told(json_t *argv, const struct desktop_act *act, struct error *err)
{
    if (act->x == DESKTOP_NOWHERE && act->y == DESKTOP_NOWHERE)
        return 0;
    return move_to(argv, act->x, act->y, err);
}

/* One of the names, or the first when there is none; its number, or -1. */
static int choose(struct str given, const char *const *names, const char *member, struct error *err)
{
    for (int i = 0; names[i]; i++)
        if (str_is(given, names[i]) || (!given.len && i == 0))
            return i;
    return error_set(err, ERROR_INVALID, "'%s' cannot be '%.*s'", member, STR_ARG(given));
}

static int add_clicks(json_t *argv, int button, int count, struct error *err)
{
    if (count < 1 || count > COUNT_MAX)
        return error_set(err, ERROR_INVALID, "a count must be from 1 to %d", COUNT_MAX);
    add(argv, "click");
    if (count > 1) {
        add(argv, "--repeat");
        add_number(argv, count);
        add(argv, "--delay");
        add(argv, "20");
    }
    add_number(argv, button);
    return 0;
}

static int click(json_t *argv, const struct desktop_act *act, struct error *err)
{
    static const char *const buttons[] = {"left", "middle", "right", NULL};
    int button = choose(act->button, buttons, "button", err);

    if (button < 0 || move_if_told(argv, act, err) < 0)
        return -1;
    return add_clicks(argv, button + 1, act->count, err);
}

static int scroll(json_t *argv, const struct desktop_act *act, struct error *err)
{
    static const char *const directions[] = {"down", "up", "left", "right", NULL};
    static const int buttons[] = {5, 4, 6, 7};
    int direction = choose(act->direction, directions, "direction", err);

    if (direction < 0 || move_if_told(argv, act, err) < 0)
        return -1;
    return add_clicks(argv, buttons[direction], act->count, err);
}

/* With a step between, or what is dragged does not notice that it is. */
static int drag(json_t *argv, const struct desktop_act *act, struct error *err)
{
    if (move_to(argv, act->x, act->y, err) < 0)
        return -1;
    add(argv, "mousedown");
    add(argv, "1");
    if (move_to(argv, (act->x + act->to_x) / 2, (act->y + act->to_y) / 2, err) < 0 ||
        move_to(argv, act->to_x, act->to_y, err) < 0)
        return -1;
    add(argv, "mouseup");
    add(argv, "1");
    return 0;
}

/* Letters no key has: xdotool lends each a key for a moment, and a program that is slow to look finds nothing there. They
 * get keys of their own first, as long as there are free ones. $1: their keysyms; the rest goes to xdotool. */
static const char letters_script[] =
    "xmodmap -pk | awk -v wanted=\"$1\" '"
    "/^ +[0-9]+/ { if (NF == 1) unused[++n] = $1; for (i = 2; i <= NF; i++) there[$i] = 1 } "
    "END { count = split(wanted, letter, \" \"); for (i = 1; i <= count && n; i++) "
    "if (!(letter[i] in there)) print \"keycode\", unused[n--], \"=\", letter[i] }' | xmodmap - ; "
    "shift; exec xdotool \"$@\"";

/* The first byte tells the length; JSON has seen to it that the text is UTF-8. */
static uint32_t letter_at(struct str text, size_t *i)
{
    unsigned char first = (unsigned char)text.p[(*i)++];
    uint32_t letter = first < 0x80 ? first : first & (first < 0xe0 ? 0x1f : first < 0xf0 ? 0xf : 7);

    while (*i < text.len && ((unsigned char)text.p[*i] & 0xc0) == 0x80)
        letter = letter << 6 | ((unsigned char)text.p[(*i)++] & 0x3f);
    return letter;
}

/* As xmodmap writes them: X has Latin letters under their own number, all others under a high one. */
static void letters_beyond_ascii(struct str text, struct buf *out)
{
    char name[16];

    for (size_t i = 0; i < text.len && out->len < LETTERS_MAX * 10;) {
        uint32_t letter = letter_at(text, &i);

        if (letter < 0xa0)
            continue;
        (void)snprintf(name, sizeof(name), letter < 0x100 ? "0x%04x " : "0x1%06x ", letter);
        if (str_find_str(buf_str(out), str_of(name)) < 0)
            (void)buf_add_str(out, str_of(name));
    }
}

static int type(json_t *argv, const struct desktop_act *act, struct error *err)
{
    auto_buf struct buf letters = {0};

    if (!act->text.len || act->delay_ms < 0 || act->delay_ms > DELAY_MAX_MS)
        return error_set(err, ERROR_INVALID, "'text' must not be empty, 'delay_ms' be from 0 to %d",
                         DELAY_MAX_MS);
    buf_init(&letters, 4096);
    letters_beyond_ascii(act->text, &letters);
    if (letters.len) {
        (void)json_array_clear(argv);
        add(argv, "sh");
        add(argv, "-c");
        add(argv, letters_script);
        add(argv, "sh");
        (void)json_array_append_new(argv, json_str(buf_str(&letters)));
    }
    add(argv, "type");
    add(argv, "--delay");
    add_number(argv, act->delay_ms);
    add(argv, "--file");
    add(argv, "-");
    return 0;
}

/* Names as people write them, besides X's own, which xdotool knows. */
static const char *key_name(struct str name)
{
    static const struct {
        const char *name, *is;
    } names[] = {{"enter", "Return"},  {"return", "Return"},  {"esc", "Escape"},
                 {"escape", "Escape"}, {"tab", "Tab"},        {"space", "space"},
                 {"del", "Delete"},    {"delete", "Delete"},  {"backspace", "BackSpace"},
                 {"home", "Home"},     {"end", "End"},        {"insert", "Insert"},
                 {"up", "Up"},         {"down", "Down"},      {"left", "Left"},
                 {"right", "Right"},   {"pageup", "Prior"},   {"page_up", "Prior"},
                 {"pagedown", "Next"}, {"page_down", "Next"}, {"cmd", "super"},
                 {"win", "super"},     {"meta", "super"},     {"control", "ctrl"},
                 {"option", "alt"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (str_eq_nocase(name, str_of(names[i].name)))
            return names[i].is;
    return NULL;
}

/* Pieces joined by "+". A word must not look like an option of xdotool. */
static int add_keys(json_t *argv, struct str keys, struct error *err)
{
    auto_buf struct buf word = {0};
    struct str rest = keys;

    if (!keys.len || keys.len > 100 || keys.p[0] == '-')
        return error_set(err, ERROR_INVALID, "'%.*s' is not a key", STR_ARG(keys));
    buf_init(&word, 256);
    while (rest.p) {
        struct str piece = str_split(&rest, '+');
        const char *known = key_name(piece);

        for (size_t i = 0; i < piece.len; i++)
            if (piece.p[i] <= ' ' || piece.p[i] > '~')
                return error_set(err, ERROR_INVALID, "'%.*s' is not a key", STR_ARG(keys));
        if (!piece.len)
            return error_set(err, ERROR_INVALID, "'%.*s' is not a key", STR_ARG(keys));
        if (word.len)
            (void)buf_add_char(&word, '+');
        (void)buf_add_str(&word, known ? str_of(known) : piece);
    }
    (void)json_array_append_new(argv, json_str(buf_str(&word)));
    return 0;
}

static int press(json_t *argv, const struct desktop_act *act, struct error *err)
{
    size_t count = json_array_size(act->keys);

    if (!count || count > DESKTOP_KEYS_MAX)
        return error_set(err, ERROR_INVALID, "'keys' must name from 1 to %d keys",
                         DESKTOP_KEYS_MAX);
    add(argv, "key");
    for (size_t i = 0; i < count; i++)
        if (add_keys(argv, str_of(json_string_value(json_array_get(act->keys, i))), err) < 0)
            return -1;
    return 0;
}

static int write_act(json_t *argv, const struct desktop_act *act, struct error *err)
{
    switch (act->kind) {
    case DESKTOP_MOVE:
        return move_to(argv, act->x, act->y, err);
    case DESKTOP_CLICK:
        return click(argv, act, err);
    case DESKTOP_TYPE:
        return type(argv, act, err);
    case DESKTOP_KEY:
        return press(argv, act, err);
    case DESKTOP_SCROLL:
        return scroll(argv, act, err);
    case DESKTOP_DRAG:
        return drag(argv, act, err);
    }
    return error_set(err, ERROR_INTERNAL, "no such act");
}

int desktop_do(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
               const struct desktop_act *act, struct error *err)
{
    auto_json json_t *argv = json_pack("[s]", "xdotool");
    auto_json json_t *env = environment(act->display);
    struct runtime_command command = {
        .argv = argv, .env = env, .input = act->text, .timeout_ms = TIMEOUT_MS, .own = true};

    if (check_display(act->display, err) < 0 || write_act(argv, act, err) < 0)
        return -1;
    return run(runtime, caller, id, &command, NULL, err);
}
