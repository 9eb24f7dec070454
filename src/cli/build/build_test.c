/* Contexts, their archives, and settings files. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "cli/build/context.h"
#include "cli/build/image.h"
#include "cli/build/settings.h"

struct place {
    char path[64];
    int dir;
};

static struct place make_place(void)
{
    struct place place = {.path = "/tmp/quicksand-context-XXXXXX"};

    CHECK(mkdtemp(place.path));
    place.dir = open(place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(place.dir >= 0);
    return place;
}

static void remove_place(struct place *place)
{
    (void)close(place->dir);
    CHECK_INT(path_remove_tree(AT_FDCWD, place->path), 0);
}

static void put(const struct place *place, const char *name, const char *content)
{
    auto_free char *path = xasprintf("%s/%s", place->path, name), *folder = xstrdup(path);
    auto_close int fd = -1;

    *strrchr(folder, '/') = '\0';
    CHECK_INT(path_make_dirs(folder, 0755), 0);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK_INT(fd_write_full(fd, content, strlen(content)), 0);
}

static struct dockerfile_files wanted(struct str *sources, size_t count, bool to_dir)
{
    return (struct dockerfile_files){.line = 3, .sources = {sources, count}, .to_dir = to_dir};
}

/* Names in the archive, one blank between them. */
static char *names_of(const struct pack *pack)
{
    struct buf out;

    buf_init(&out, 65536);
    for (size_t i = 0; i < pack->count; i++)
        (void)buf_printf(&out, "%s%s", i ? " " : "", pack->entries[i].name);
    return buf_take(&out);
}

static void check_names(int line, const struct place *place, struct dockerfile_files files,
                        const char *want, const char *src)
{
    struct context context;
    struct pack pack = {0};
    struct error err = {0};
    auto_free char *got = NULL;

    if (context_open(&context, place->path, "Dockerfile", &err) < 0 ||
        pack_gather(&context, &files, &pack, &err) < 0)
        test_fail(__FILE__, line, "%s", err.message);
    got = names_of(&pack);
    if (strcmp(got, want) != 0 || !str_is(pack.src, src))
        test_fail(__FILE__, line, "'%s' of '%.*s', not '%s' of '%s'", got, STR_ARG(pack.src), want,
                  src);
    pack_done(&pack);
    context_done(&context);
}
#define NAMES(place, files, want, src) check_names(__LINE__, place, files, want, src)

static void check_fault(int line, const struct place *place, struct dockerfile_files files,
                        const char *want)
{
    struct context context;
    struct pack pack = {0};
    struct error err = {0};

    if (context_open(&context, place->path, "Dockerfile", &err) == 0 &&
        pack_gather(&context, &files, &pack, &err) == 0)
        test_fail(__FILE__, line, "it is taken");
    if (!strstr(err.message, want) || !strstr(err.message, "Dockerfile:3: "))
        test_fail(__FILE__, line, "%s", err.message);
    pack_done(&pack);
    context_done(&context);
}
#define NO_NAMES(place, files, want) check_fault(__LINE__, place, files, want)

#define ONE(text)     ((struct str[]){STR(text)}), 1
#define TWO(one, two) ((struct str[]){STR(one), STR(two)}), 2

TEST(what_sources_stand_for)
{
    struct place place = make_place();

    put(&place, "a.txt", "a");
    put(&place, "b.txt", "b");
    put(&place, "dir/c", "c");
    put(&place, "dir/sub/d", "d");
    CHECK_INT(symlinkat("a.txt", place.dir, "link"), 0);
    CHECK_INT(symlinkat("/nowhere", place.dir, "dir/out"), 0);
    NAMES(&place, wanted(ONE("a.txt"), false), "a.txt", "a.txt");
    NAMES(&place, wanted(ONE("a.txt"), true), "a.txt", ".");
    NAMES(&place, wanted(ONE("link"), false), "link", "link");
    NAMES(&place, wanted(ONE("dir"), false), "c out sub sub/d", ".");
    NAMES(&place, wanted(ONE("dir/*"), true), "c out d", ".");
    NAMES(&place, wanted(TWO("*.txt", "none*"), true), "a.txt b.txt", ".");
    NAMES(&place, wanted(ONE("."), false), "a.txt b.txt dir dir/c dir/out dir/sub dir/sub/d link",
          ".");
    NO_NAMES(&place, wanted(ONE("none"), false), "'none' is not in the context");
    NO_NAMES(&place, wanted(ONE("none*"), true), "no file of the context matches");
    NO_NAMES(&place, wanted(ONE("*.txt"), false), "ends in '/'");
    remove_place(&place);
}

TEST(nothing_outside_is_read)
{
    struct place place = make_place();

    put(&place, "etc/passwd", "inside");
    CHECK_INT(symlinkat("/etc/passwd", place.dir, "up"), 0);
    CHECK_INT(symlinkat("../../../../etc/hostname", place.dir, "out"), 0);
    NAMES(&place, wanted(ONE("up"), false), "up", "up"); /* the context is its root */
    NO_NAMES(&place, wanted(ONE("out"), false), "not in the context");
    remove_place(&place);
}

TEST(what_dockerignore_leaves_out)
{
    struct place place = make_place();
    struct str excludes[] = {STR("*.md")};
    struct dockerfile_files files = wanted(ONE("."), false);

    put(&place, ".dockerignore", "**/node_modules\nsecret\nkeep\n!keep/this\n");
    put(&place, "x/node_modules/a", "");
    put(&place, "secret", "");
    put(&place, "keep/this", "");
    put(&place, "keep/other", "");
    put(&place, "y.md", "");
    NAMES(&place, files, ".dockerignore keep keep/this x y.md", ".");
    files.excludes = (struct words){excludes, 1};
    NAMES(&place, files, ".dockerignore keep keep/this x", ".");
    NO_NAMES(&place, wanted(ONE("secret"), false), "left out by the file .dockerignore");
    remove_place(&place);
}

static void hash_of(const struct place *place, char out[CONTEXT_HASH_SIZE])
{
    struct dockerfile_files files = wanted(ONE("."), false);
    struct context context;
    struct pack pack;

    OK(context_open(&context, place->path, "Dockerfile", &err));
    OK(pack_gather(&context, &files, &pack, &err));
    memcpy(out, pack.hash, CONTEXT_HASH_SIZE);
    pack_done(&pack);
    context_done(&context);
}

TEST(the_hash_is_of_names_modes_and_contents)
{
    struct place place = make_place();
    struct timespec old[2] = {{1, 0}, {1, 0}};
    char first[CONTEXT_HASH_SIZE], other[CONTEXT_HASH_SIZE];

    put(&place, "a", "one");
    hash_of(&place, first);
    CHECK_INT(utimensat(place.dir, "a", old, 0), 0);
    hash_of(&place, other);
    CHECK_STR(str_of(other), first);
    CHECK_INT(fchmodat(place.dir, "a", 0755, 0), 0);
    hash_of(&place, other);
    CHECK(strcmp(first, other) != 0);
    CHECK_INT(fchmodat(place.dir, "a", 0644, 0), 0);
    put(&place, "a", "two");
    hash_of(&place, other);
    CHECK(strcmp(first, other) != 0);
    put(&place, "a", "one");
    CHECK_INT(renameat(place.dir, "a", place.dir, "b"), 0);
    hash_of(&place, other);
    CHECK(strcmp(first, other) != 0);
    remove_place(&place);
}

/* "name mode size\n" of each entry. */
static char *list_archive(int fd)
{
    struct archive *in = archive_read_new();
    struct archive_entry *entry;
    struct buf out;

    buf_init(&out, 65536);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    (void)archive_read_support_filter_gzip(in);
    (void)archive_read_support_format_tar(in);
    CHECK_INT(archive_read_open_fd(in, fd, 4096), ARCHIVE_OK);
    while (archive_read_next_header(in, &entry) == ARCHIVE_OK)
        (void)buf_printf(&out, "%s %o %lld:%lld %lld\n", archive_entry_pathname(entry),
                         archive_entry_mode(entry), (long long)archive_entry_uid(entry),
                         (long long)archive_entry_gid(entry), (long long)archive_entry_size(entry));
    (void)archive_read_free(in);
    return buf_take(&out);
}

static char *archive_of(const struct place *place, const struct dockerfile_files *files,
                        bool *keeps_owners)
{
    struct context context;
    struct pack pack;
    FILE *file = tmpfile();
    char *list;

    OK(context_open(&context, place->path, "Dockerfile", &err));
    OK(pack_gather(&context, files, &pack, &err));
    OK(pack_write(&context, &pack, fileno(file), &err));
    list = list_archive(fileno(file));
    *keeps_owners = pack.keeps_owners;
    pack_done(&pack);
    context_done(&context);
    (void)fclose(file);
    return list;
}

TEST(archives)
{
    struct place place = make_place();
    struct dockerfile_file own = {STR("here"), STR("doc")};
    struct dockerfile_files files = wanted(ONE("."), true);
    auto_free char *list = NULL;
    bool keeps;

    put(&place, "d/long-enough", "0123456789");
    CHECK_INT(fchmodat(place.dir, "d/long-enough", 04755, 0), 0);
    CHECK_INT(symlinkat("x", place.dir, "l"), 0);
    put(&place, "\xc3\xa4", "u");
    files.own = &own;
    files.own_count = 1;
    list = archive_of(&place, &files, &keeps);
    CHECK_STR(str_of(list), "d/ 40755 0:0 0\nd/long-enough 104755 0:0 10\nl 120777 0:0 0\n\xc3\xa4 "
                            "100644 0:0 1\nhere 100644 0:0 3\n");
    CHECK(!keeps);
    remove_place(&place);
}

TEST(add_unpacks_archives)
{
    struct place place = make_place();
    auto_free char *tar = xasprintf("%s/x.tar.gz", place.path), *list = NULL, *plain = NULL;
    struct dockerfile_files files = wanted(ONE("x.tar.gz"), false);
    struct archive *out = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    bool keeps;

    (void)archive_write_set_format_ustar(out);
    (void)archive_write_add_filter_gzip(out);
    CHECK_INT(archive_write_open_filename(out, tar), ARCHIVE_OK);
    archive_entry_set_pathname(entry, "in/side");
    archive_entry_set_mode(entry, S_IFREG | 0640);
    archive_entry_set_uid(entry, 7);
    archive_entry_set_size(entry, 2);
    CHECK_INT(archive_write_header(out, entry), ARCHIVE_OK);
    CHECK_INT(archive_write_data(out, "ab", 2), 2);
    archive_entry_free(entry);
    CHECK_INT(archive_write_free(out), ARCHIVE_OK);
    plain = archive_of(&place, &files, &keeps);
    CHECK(strncmp(plain, "x.tar.gz 100644 0:0", 19) == 0 && !keeps);
    files.unpack = true;
    list = archive_of(&place, &files, &keeps);
    CHECK_STR(str_of(list), "in/side 100640 7:0 2\n");
    CHECK(keeps);
    remove_place(&place);
}

TEST(settings)
{
    auto_arena struct arena arena = {0};
    struct build_settings out;

    OK(settings_parse(
        STR("# E2B's\nteam_id = \"x\"\ntemplate_id = \"id\"\ntemplate_name='na\\me'\n"
            "dockerfile = \"e2b.Dockerfile\" # here\nstart_cmd = \"\"\"\na \\\"b\\\"\nc\"\"\"\r\n"
            "cpu_count=2\nmemory_mb = 4096\n\n"),
        "e2b.toml", &arena, &out, &err));
    CHECK_STR(out.name, "na\\me");
    CHECK_STR(out.dockerfile, "e2b.Dockerfile");
    CHECK_STR(out.start_cmd, "a \"b\"\nc");
    CHECK(!out.ready_cmd.p);
    CHECK_INT(out.cpu_count, 2);
    CHECK_INT(out.memory_mb, 4096);
    OK(settings_parse(STR("template_id = \"id\""), "e2b.toml", &arena, &out, &err));
    CHECK_STR(out.name, "id");
    FAILS(settings_parse(STR("\nmemory = 1\n"), "e2b.toml", &arena, &out, &err), ERROR_INVALID,
          "e2b.toml:2: there is no setting 'memory'");
    FAILS(settings_parse(STR("cpu_count = \"2\"\n"), "e2b.toml", &arena, &out, &err), ERROR_INVALID,
          "needs a number");
    FAILS(settings_parse(STR("name = x\n"), "e2b.toml", &arena, &out, &err), ERROR_INVALID,
          "text in quotes");
    FAILS(settings_parse(STR("name = \"x\n"), "e2b.toml", &arena, &out, &err), ERROR_INVALID,
          "has no end");
    FAILS(settings_parse(STR("[template]\n"), "e2b.toml", &arena, &out, &err), ERROR_INVALID,
          "tables are not known");
    FAILS(settings_parse(STR("name = \"x\" y\n"), "e2b.toml", &arena, &out, &err), ERROR_INVALID,
          "behind the value");
}

static void put_layout(const struct place *place)
{
    static const char hash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    auto_free char *index = xasprintf("{\"manifests\":[{\"digest\":\"sha256:%s\"}]}", hash);
    auto_free char *name = xasprintf("blobs/sha256/%s", hash);

    put(place, "index.json", index);
    put(place, name,
        "{\"config\":{\"digest\":\"sha256:"
        "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"},\"layers\":[{"
        "\"digest\":"
        "\"sha256:2123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}]}");
}

TEST(image_layouts)
{
    struct place place = make_place();
    struct image image = {0};

    put_layout(&place);
    OK(image_open(&image, place.path, &err));
    CHECK_INT(image.count, 3);
    CHECK(strncmp(image.digest, "sha256:0123", 11) == 0);
    CHECK(image.blobs[2].hash[0] == '2');
    image_done(&image);
    put(&place, "index.json", "{\"manifests\":[{\"digest\":\"sha256:../../x\"}]}");
    FAILS(image_open(&image, place.path, &err), ERROR_INVALID, "no image for this machine");
    image_done(&image);
    remove_place(&place);
}

TEST(saved_images)
{
    struct place place = make_place();
    struct image image = {0};

    put(&place, "manifest.json", "[{\"Config\":\"c.json\",\"Layers\":[\"l/layer.tar\"]}]");
    put(&place, "c.json", "{}");
    put(&place, "l/layer.tar", "x");
    OK(image_open(&image, place.path, &err));
    CHECK_INT(image.count, 3);
    CHECK(image.blobs[2].text.p && strstr(image.blobs[2].text.p, "image.layer.v1.tar\""));
    CHECK_STR(str_of(image.blobs[0].hash),
              "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    image_done(&image);
    put(&place, "manifest.json", "[{},{}]");
    FAILS(image_open(&image, place.path, &err), ERROR_INVALID, "2 images");
    image_done(&image);
    remove_place(&place);
}
