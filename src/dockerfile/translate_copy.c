/* COPY, ADD and VOLUME: what puts files into a stage. */
#include "dockerfile/translate_internal.h"
#include "protocol/json/json_shape.h"

struct copy {
    bool is_add, link;
    struct str from, chown, chmod, checksum;
    struct words excludes;
    struct words sources;
    struct str dest; /* with a '/' at its end when it is a directory for certain */
    bool to_dir, is_later;
};

static const char *const copy_flags[] = {"from", "chown", "chmod", "link", "exclude", NULL};
static const char *const add_flags[] = {"chown", "chmod", "link", "exclude", "checksum", NULL};

static bool knows(const char *const *flags, struct str flag)
{
    for (; *flags; flags++)
        if (str_is(flag, *flags))
            return true;
    return false;
}

static int refuse_flag(struct translate_work *work, struct str flag)
{
    const char *advice = str_is(flag, "parents")        ? ": name the whole destination instead"
                         : str_is(flag, "keep-git-dir") ? ": use 'RUN git clone'"
                         : str_is(flag, "unpack")
                             ? ": archives of the context are unpacked, others are not"
                             : "";

    return translate_fault(work, "%.*s --%.*s is not supported%s", STR_ARG(work->in->keyword),
                           STR_ARG(flag), advice);
}

static bool is_octal(struct str mode)
{
    for (size_t i = 0; i < mode.len; i++)
        if (mode.p[i] < '0' || mode.p[i] > '7')
            return false;
    return mode.len >= 3 && mode.len <= 5;
}

static int take_flag(struct translate_work *work, struct copy *copy, struct str flag,
                     struct str value)
{
    if (!knows(copy->is_add ? add_flags : copy_flags, flag))
        return refuse_flag(work, flag);
    if (str_is(flag, "link")) {
        if (!translate_bool(value, &copy->link))
            return translate_fault(work, "--link is true or false");
        return 0;
    }
    if (translate_text(work, value, &value, NULL) < 0)
        return -1;
    if (!value.len)
        return translate_fault(work, "--%.*s needs a value", STR_ARG(flag));
    if (str_is(flag, "chmod") && !is_octal(value))
        return translate_fault(work, "--chmod needs digits like 755, not '%.*s'", STR_ARG(value));
    if (str_is(flag, "exclude")) {
        struct str *grown =
            arena_alloc(work->arena, (copy->excludes.count + 1) * sizeof(struct str));

        if (copy->excludes.count)
            memcpy(grown, copy->excludes.items, copy->excludes.count * sizeof(struct str));
        grown[copy->excludes.count++] = value;
        copy->excludes.items = grown;
        return 0;
    }
    *(str_is(flag, "from")    ? &copy->from
      : str_is(flag, "chown") ? &copy->chown
      : str_is(flag, "chmod") ? &copy->chmod
                              : &copy->checksum) = value;
    return 0;
}

static bool ends_as_directory(struct str path)
{
    return str_is(path, ".") || str_is(path, "..") || str_ends(path, STR("/")) ||
           str_ends(path, STR("/.")) || str_ends(path, STR("/.."));
}

static int take_dest(struct translate_work *work, struct copy *copy, struct str word)
{
    if (translate_text(work, word, &copy->dest, &copy->is_later) < 0)
        return -1;
    if (!copy->dest.len)
        return translate_fault(work, "the destination is empty");
    copy->to_dir = ends_as_directory(copy->dest);
    copy->dest = translate_path(work, copy->dest, copy->is_later);
    if (copy->to_dir && !str_ends(copy->dest, STR("/")))
        copy->dest = str_of(arena_printf(work->arena, "%.*s/", STR_ARG(copy->dest)));
    return 0;
}

static int read_copy(struct translate_work *work, struct copy *copy)
{
    struct str rest = work->in->rest, flag, value;
    struct words words;

    *copy = (struct copy){.is_add = str_is(work->in->keyword, "ADD")};
    while (words_flag(&rest, work->docker.escape, &flag, &value))
        if (take_flag(work, copy, flag, value) < 0)
            return -1;
    if (!words_json(rest, work->arena, &words))
        words_split(rest, work->arena, &words);
    if (words.count < 2)
        return translate_fault(work, "%.*s needs a source and a destination",
                               STR_ARG(work->in->keyword));
    copy->sources = (struct words){words.items, words.count - 1};
    if (take_dest(work, copy, words.items[words.count - 1]) < 0)
        return -1;
    if (copy->sources.count > 1 && !copy->to_dir)
        return translate_fault(work, "several sources need a destination that ends in '/'");
    return 0;
}

static json_t *copy_step(struct translate_work *work, const struct copy *copy, struct str source,
                         struct str owner, struct str mode)
{
    json_t *step = translate_step(work, "COPY");

    (void)json_object_set_new(step, "args",
                              json_pack("[o,o,o,o]", json_str(source), json_str(copy->dest),
                                        json_str(owner.p ? owner : STR("")),
                                        json_str(mode.p ? mode : STR(""))));
    translate_literal(step, copy->is_later);
    if (copy->link)
        (void)json_object_set_new(step, "link", json_true());
    return step;
}

/* ---- from the context ---- */

static const struct dockerfile_heredoc *heredoc_of(const struct dockerfile_instruction *in,
                                                   struct str word)
{
    for (size_t i = 0; i < in->heredoc_count; i++)
        if (str_eq(in->heredocs[i].word, word))
            return &in->heredocs[i];
    return NULL;
}

static int add_heredoc(struct translate_work *work, const struct dockerfile_heredoc *doc,
                       struct dockerfile_file *out)
{
    *out = (struct dockerfile_file){.name = doc->name, .content = doc->content};
    return doc->quoted ? 0 : translate_lines(work, doc->content, &out->content);
}

/* Beneath the context, without "/" at its front. */
static int clean_source(struct translate_work *work, struct str *source)
{
    struct str rest = *source;

    while (rest.p) {
        struct str part = str_split(&rest, '/');

        if (str_is(part, ".."))
            return translate_fault(work, "'%.*s' is outside of the context", STR_ARG(*source));
    }
    while (str_starts(*source, STR("/")) || str_starts(*source, STR("./")))
        *source = str_skip(*source, source->p[0] == '/' ? 1 : 2);
    while (str_ends(*source, STR("/")))
        source->len--;
    if (!source->len)
        *source = STR(".");
    return 0;
}

static bool is_url(struct str source)
{
    return str_starts(source, STR("http://")) || str_starts(source, STR("https://"));
}

static bool is_git(struct str source)
{
    return str_starts(source, STR("git@")) || str_starts(source, STR("git://")) ||
           str_starts(source, STR("ssh://")) ||
           (is_url(source) &&
            (str_ends(source, STR(".git")) || str_find_str(source, STR(".git#")) >= 0));
}

static int copy_url(struct translate_work *work, const struct copy *copy, struct str url)
{
    struct str path = url, name = STR("");
    json_t *step;

    path.len = str_find(path, '?') >= 0 ? (size_t)str_find(path, '?') : path.len;
    path.len = str_find(path, '#') >= 0 ? (size_t)str_find(path, '#') : path.len;
    path = str_skip(path, str_starts(path, STR("https://")) ? 8 : 7);
    (void)str_split(&path, '/');
    while (path.p)
        name = str_split(&path, '/');
    if (!name.len && copy->to_dir)
        return translate_fault(work, "'%.*s' has no file name: name the destination", STR_ARG(url));
    step = copy_step(work, copy, name.len ? name : STR("file"),
                     copy->chown.len ? copy->chown : STR("0:0"),
                     copy->chmod.len ? copy->chmod : STR("0600"));
    (void)json_object_set_new(step, "url", json_str(url));
    if (copy->checksum.len)
        (void)json_object_set_new(step, "checksum", json_str(copy->checksum));
    return 0;
}

static int copy_context(struct translate_work *work, const struct copy *copy)
{
    const struct dockerfile_heredoc *doc;
    struct dockerfile_files files = {.unpack = copy->is_add, .to_dir = copy->to_dir};
    struct dockerfile_file *own;
    struct dockerfile_files *out;

    files.sources.items = arena_alloc(work->arena, copy->sources.count * sizeof(struct str));
    own = arena_alloc(work->arena, copy->sources.count * sizeof(*own));
    for (size_t i = 0; i < copy->sources.count; i++) {
        struct str source = copy->sources.items[i];

        doc = heredoc_of(work->in, source);
        if (doc) {
            if (add_heredoc(work, doc, &own[files.own_count++]) < 0)
                return -1;
            continue;
        }
        if (translate_text(work, source, &source, NULL) < 0)
            return -1;
        if (copy->is_add && is_git(source))
            return translate_fault(work, "ADD of a git repository is not supported: use "
                                         "'RUN git clone'");
        if (copy->is_add && is_url(source)) {
            if (copy_url(work, copy, source) < 0)
                return -1;
            continue;
        }
        if (clean_source(work, &source) < 0)
            return -1;
        files.sources.items[files.sources.count++] = source;
    }
    if (!files.sources.count && !files.own_count)
        return 0;
    if (copy->checksum.len)
        return translate_fault(work, "--checksum is for what is fetched from a URL");
    out = translate_need_files(
        work,
        copy_step(work, copy, STR("."), copy->chown.len ? copy->chown : STR("0:0"), copy->chmod));
    files.step = out->step;
    files.line = out->line;
    files.stage = out->stage;
    files.excludes = copy->excludes;
    files.own = own;
    *out = files;
    return 0;
}

/* ---- from a stage or an image ---- */

static int copy_from(struct translate_work *work, const struct copy *copy)
{
    for (size_t i = 0; i < copy->sources.count; i++) {
        struct str source = copy->sources.items[i];
        json_t *step;

        if (heredoc_of(work->in, source))
            return translate_fault(work, "a here-document does not come from '%.*s'",
                                   STR_ARG(copy->from));
        if (translate_text(work, source, &source, NULL) < 0 || clean_source(work, &source) < 0)
            return -1;
        source = str_is(source, ".") ? STR("/")
                                     : str_of(arena_printf(work->arena, "/%.*s", STR_ARG(source)));
        if (str_find_str(copy->from, STR("://")) >= 0)
            return translate_fault(work, "--from: give '%.*s' a stage of its own (FROM … AS name)",
                                   STR_ARG(copy->from));
        step =
            copy_step(work, copy, source, copy->chown.len ? copy->chown : STR("keep"), copy->chmod);
        if (copy->excludes.count)
            (void)json_object_set_new(step, "excludes", translate_list(&copy->excludes));
        if (translate_from(work, step, copy->from) < 0)
            return -1;
    }
    return 0;
}

int translate_copy(struct translate_work *work)
{
    struct copy copy;

    if (read_copy(work, &copy) < 0)
        return -1;
    return copy.from.len ? copy_from(work, &copy) : copy_context(work, &copy);
}

/* What would be a volume of its own is a directory here. */
int translate_volume(struct translate_work *work)
{
    struct words words;

    if (!words_json(work->in->rest, work->arena, &words))
        words_split(work->in->rest, work->arena, &words);
    if (!words.count)
        return translate_fault(work, "VOLUME needs a directory");
    for (size_t i = 0; i < words.count; i++) {
        struct copy copy = {.to_dir = true};

        if (take_dest(work, &copy, words.items[i]) < 0)
            return -1;
        copy.to_dir = true;
        if (!str_ends(copy.dest, STR("/")))
            copy.dest = str_of(arena_printf(work->arena, "%.*s/", STR_ARG(copy.dest)));
        (void)translate_need_files(work, copy_step(work, &copy, STR("."), STR("0:0"), STR("")));
    }
    return 0;
}
