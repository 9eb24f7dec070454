/* Starts in a machine what its profile says besides the template. By scripts that are constant, get what differs by their environment, and
 * leave alone what runs already: so they may run whenever a machine begins, whatever it brought back. */
#include "runtime/sandbox/equip.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/parts.h"
#include "protocol/json/json_shape.h"
#include "runtime/run/run.h"

enum {
    EQUIP_MS = 300 * 1000,
    PRINTED_MAX = 4096,
    TOLD_MAX = 300,
    TOKEN_MAX = 256,
    NO_PROGRAM = 93
};

#define PROGRAM "mcp-gateway"
/* Where it is put when the template has none, and taken from by who may write to /usr/local/bin. */
#define UPLOADED "/tmp/.quicksand-" PROGRAM

/* Prints the token. The names of processes are read from /proc: not every image has pgrep. */
static const char gateway_script[] =
    "umask 022; servers=$QS_MCP; unset QS_MCP\n"
    "state=/etc/mcp-gateway\n"
    "running() { grep -slx mcp-gateway /proc/[0-9]*/comm; }\n"
    "if running >/dev/null && [ -s $state/.token ] && [ \"$(cat $state/.servers 2>/dev/null)\" = "
    "\"$servers\" ]; then\n"
    "    cat $state/.token; exit 0\n"
    "fi\n"
    "command -v mcp-gateway >/dev/null || {\n"
    "    [ -f " UPLOADED " ] || exit 93\n"
    "    mkdir -p /usr/local/bin && cp " UPLOADED " /usr/local/bin/mcp-gateway && "
    "chmod 0755 /usr/local/bin/mcp-gateway && rm -f " UPLOADED " || exit 1\n"
    "}\n"
    "PATH=$PATH:/usr/local/bin\n"
    "for comm in $(running); do kill -KILL \"$(basename \"$(dirname $comm)\")\"; done\n"
    "for _ in $(seq 200); do running >/dev/null || break; sleep 0.05; done\n"
    "token=$(cat $state/.token 2>/dev/null)\n"
    "[ -n \"$token\" ] || token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n"
    "GATEWAY_ACCESS_TOKEN=$token mcp-gateway --config \"$servers\" >&2 || exit 1\n"
    "umask 077; printf %s \"$servers\" >$state/.servers; cat $state/.token\n";

/* The programs of the template stand in front of the real ones: the screen that was prepared makes place for another one. */
static const char screen_script[] =
    "export DISPLAY=${DISPLAY:-:0}; cd\n"
    "for program in Xvfb xdpyinfo startxfce4; do\n"
    "    command -v $program >/dev/null || { echo \"there is no $program\" >&2; exit 1; }\n"
    "done\n"
    "now() { xdpyinfo 2>/dev/null | awk '/dimensions:|resolution:/ { print $2 }' | tr '\\n' ' '; "
    "}\n"
    "wanted=\"$QS_SIZE ${QS_DPI}x$QS_DPI \"\n"
    "if [ \"$(now)\" != \"$wanted\" ]; then\n"
    "    setsid Xvfb $DISPLAY -ac -screen 0 ${QS_SIZE}x24 -retro -dpi $QS_DPI -nolisten tcp "
    "-nolisten "
    "unix </dev/null >/dev/null 2>&1 &\n"
    "    for _ in $(seq 300); do [ \"$(now)\" = \"$wanted\" ] && break; sleep 0.05; done\n"
    "    [ \"$(now)\" = \"$wanted\" ] || { echo \"the screen is $(now)and not $wanted\" >&2; exit "
    "1; "
    "}\n"
    "fi\n"
    "pgrep -x xfce4-session >/dev/null || setsid startxfce4 </dev/null >/dev/null 2>&1 &\n"
    "for _ in $(seq 600); do\n"
    "    pgrep -x xfwm4 >/dev/null && pgrep -x xfdesktop >/dev/null && break; sleep 0.1\n"
    "done\n"
    "pgrep -x xfdesktop >/dev/null || { echo 'the session did not start' >&2; exit 1; }\n"
    "[ \"$QS_VNC\" != 1 ] || desktop-stream >/dev/null\n";

/* *out_code: of the script; NULL = what is not 0 is an error, with its words. */
static int run_script(const struct equip_place *place, const char *script, const json_t *env,
                      const char *user, int *out_code, struct buf *out, struct error *err)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    auto_arena struct arena arena = {0};
    struct runtime_run run = {
        .argv = argv, .user = user, .timeout_ms = EQUIP_MS, .output_limit = PRINTED_MAX};
    struct runtime_result result = {0};
    bool started = false;
    int r = runtime_command_env(env, NULL, &arena, &run.env, &run.env_count, err);

    if (r == 0)
        r = runtime_run(place->runtime, place->provider, &place->ref, &run, &result, &started, err);
    if (r == 0 && out_code)
        *out_code = result.exit_code;
    if (r == 0 && result.exit_code != 0 && !(out_code && result.exit_code == NO_PROGRAM)) {
        struct str told = str_trim(buf_str(&result.err));

        if (told.len > TOLD_MAX)
            told = str_skip(told, told.len - TOLD_MAX);
        r = error_set(err, ERROR_CONFLICT, "%.*s", STR_ARG(told));
        runtime_mask(place->runtime, place->team_id, err->message);
    }
    if (r == 0 && out && result.out.len)
        (void)buf_add_str(out, buf_str(&result.out));
    runtime_result_done(&result);
    return r;
}

/* ---- the MCP gateway ---- */

static ssize_t read_program(void *arg, void *p, size_t size)
{
    return read(*(int *)arg, p, size);
}

static int upload(const struct equip_place *place, struct error *err)
{
    char path[PATH_MAX];
    struct stat st;

    part_path(PROGRAM, path, sizeof(path));
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, ERROR_UNAVAILABLE,
                         "the template has no mcp-gateway, and there is none at '%s': use the "
                         "template mcp-gateway, or one that is made of it",
                         path);
    return provider_write(place->provider, &place->ref, UPLOADED, read_program, &fd, st.st_size,
                          err);
}

int equip_gateway(const struct equip_place *place, const json_t *servers, struct arena *arena,
                  struct str *out_token, struct error *err)
{
    auto_free char *text = json_dumps(servers, JSON_COMPACT | JSON_SORT_KEYS);
    auto_json json_t *env = json_pack("{s:s}", "QS_MCP", text ? text : "{}");
    auto_buf struct buf token = {0};
    int code = 0, r;

    buf_init(&token, TOKEN_MAX);
    r = run_script(place, gateway_script, env, "root", &code, &token, err);
    if (r == 0 && code == NO_PROGRAM && (r = upload(place, err)) == 0)
        r = run_script(place, gateway_script, env, "root", NULL, &token, err);
    if (r == 0 && (!token.len || token.overflowed))
        r = error_set(err, ERROR_CONFLICT, "it tells no token");
    if (r < 0)
        return error_prefix(err, "the MCP gateway of the sandbox");
    if (out_token)
        *out_token = arena_str(arena, str_trim(buf_str(&token)));
    return 0;
}

/* ---- the screen ---- */

static int equip_screen(const struct equip_place *place, const json_t *screen, struct error *err)
{
    char dpi[16];
    auto_json json_t *env = NULL;

    (void)snprintf(dpi, sizeof(dpi), "%lld",
                   (long long)json_integer_value(json_object_get(screen, "dpi")));
    env = json_pack("{s:O, s:s, s:s}", "QS_SIZE", json_object_get(screen, "size"), "QS_DPI", dpi,
                    "QS_VNC", json_is_true(json_object_get(screen, "vnc")) ? "1" : "0");
    if (run_script(place, screen_script, env, NULL, NULL, NULL, err) < 0)
        return error_prefix(err, "the screen of the sandbox (template desktop)");
    return 0;
}

int machine_equip(struct runtime *runtime, struct backend *backend,
                  const struct store_runtime_sandbox *row, struct error *err)
{
    auto_arena struct arena arena = {0};
    const json_t *settings = arena_parse(&arena, row->settings);
    const json_t *screen = json_object_get(settings, "screen"),
                 *servers = json_object_get(settings, "mcp");
    struct equip_place place = {.runtime = runtime,
                                .provider = backend_provider(backend),
                                .ref = runtime_row_ref(row, 0),
                                .team_id = row->team_id};
    int r = 0;

    if (screen)
        r = equip_screen(&place, screen, err);
    if (r == 0 && servers)
        r = equip_gateway(&place, servers, &arena, NULL, err);
    return r;
}
