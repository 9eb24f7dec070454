/* Files, and what outlives a sandbox. */
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "provider/contract/contract.h"

enum { LARGE = 10 * 1024 * 1024 };

#define DIR "/tmp/contract dir"

struct pattern {
    size_t at, length;
    bool wrong;
};

static char byte_at(size_t at)
{
    return (char)(at * 2654435761U >> 13);
}

static ssize_t give(void *arg, void *p, size_t size)
{
    struct pattern *pattern = arg;
    size_t n = pattern->length - pattern->at;

    n = n < size ? n : size;
    for (size_t i = 0; i < n; i++)
        ((char *)p)[i] = byte_at(pattern->at + i);
    pattern->at += n;
    return (ssize_t)n;
}

static int compare(void *arg, struct str data)
{
    struct pattern *pattern = arg;

    for (size_t i = 0; i < data.len; i++)
        pattern->wrong |= data.p[i] != byte_at(pattern->at + i);
    pattern->at += data.len;
    return 0;
}

static int collect(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static int put(struct contract *contract, const char *path, size_t length, int64_t told,
               struct error *err)
{
    struct pattern pattern = {.length = length};

    return provider_write(contract->provider, &contract->ref, path, give, &pattern, told, err);
}

static bool same(struct contract *contract, const char *path, size_t length)
{
    struct pattern pattern = {0};
    struct error err = {0};

    if (provider_read(contract->provider, &contract->ref, path, compare, &pattern, &err) < 0)
        contract_fail(__FILE__, __LINE__, "read '%s': %s", path, err.message);
    return !pattern.wrong && pattern.at == length;
}

static bool has_files(struct contract *contract)
{
    if (contract->features & PROVIDER_FILES)
        return true;
    contract_skip("no files");
    return false;
}

static void check_write_read(struct contract *contract)
{
    struct error err = {0};

    if (!has_files(contract))
        return;
    MUST_OK(put(contract, DIR "/a/b/small", 100, 100, &err), err);
    MUST(same(contract, DIR "/a/b/small", 100));
    MUST_OK(put(contract, DIR "/a/b/small", 10, 10, &err), err);
    MUST(same(contract, DIR "/a/b/small", 10));
    MUST_OK(put(contract, DIR "/empty", 0, 0, &err), err);
    MUST(same(contract, DIR "/empty", 0));
    MUST_OK(put(contract, "in-home", 5, 5, &err), err);
    MUST(same(contract, "in-home", 5));
    MUST_OK(put(contract, DIR "/\xc3\xa9 + ? & %41", 6, 6, &err), err);
    MUST(same(contract, DIR "/\xc3\xa9 + ? & %41", 6));
}

static void check_large(struct contract *contract)
{
    auto_result struct contract_result result = {0};
    struct error err = {0};

    if (!has_files(contract))
        return;
    MUST_OK(put(contract, DIR "/large", LARGE, LARGE, &err), err);
    MUST(same(contract, DIR "/large", LARGE));
    MUST_OK(put(contract, DIR "/large2", LARGE, -1, &err), err);
    MUST(same(contract, DIR "/large2", LARGE));
    MUST_OK(
        contract_sh(contract, "cmp '" DIR "/large' '" DIR "/large2' && echo same", &result, &err),
        err);
    MUST_STR(buf_str(&result.out), "same\n");
}

static void check_list(struct contract *contract)
{
    struct provider_file *files;
    struct error err = {0};
    size_t count;
    bool large = false, directory = false;

    if (!has_files(contract))
        return;
    MUST_OK(provider_list(contract->provider, &contract->ref, DIR, &contract->arena, &files, &count,
                          &err),
            err);
    for (size_t i = 0; i < count; i++) {
        large |= str_is(files[i].name, "large") && !files[i].directory && files[i].size == LARGE &&
                 str_is(files[i].path, DIR "/large") && files[i].modified_at_us > 0;
        directory |= str_is(files[i].name, "a") && files[i].directory;
    }
    MUST(large && directory);
    MUST_INT(count, 5);
}

static void check_absent(struct contract *contract)
{
    struct provider_file *files;
    auto_buf struct buf content = {0};
    struct error err;
    size_t count;

    if (!has_files(contract))
        return;
    buf_init(&content, 4096);
    MUST_FAIL(
        provider_read(contract->provider, &contract->ref, DIR "/none", collect, &content, &err),
        err, ERROR_NOT_FOUND);
    MUST_FAIL(provider_read(contract->provider, &contract->ref, DIR, collect, &content, &err), err,
              ERROR_INVALID);
    MUST_INT(content.len, 0);
    MUST_FAIL(provider_list(contract->provider, &contract->ref, DIR "/none", &contract->arena,
                            &files, &count, &err),
              err, ERROR_NOT_FOUND);
    MUST_FAIL(provider_remove(contract->provider, &contract->ref, DIR "/none", &err), err,
              ERROR_NOT_FOUND);
}

static void check_remove(struct contract *contract)
{
    auto_result struct contract_result result = {0};
    struct error err = {0};

    if (!has_files(contract))
        return;
    MUST_OK(provider_remove(contract->provider, &contract->ref, DIR "/large2", &err), err);
    MUST_OK(provider_remove(contract->provider, &contract->ref, DIR, &err), err);
    MUST_OK(contract_sh(contract, "test -e '" DIR "' || echo gone", &result, &err), err);
    MUST_STR(buf_str(&result.out), "gone\n");
}

const struct contract_check contract_file_checks[] = {
    {"files: write and read", check_write_read},
    {"files: 10 MB", check_large},
    {"files: list", check_list},
    {"files: what is not there", check_absent},
    {"files: remove", check_remove},
    {0},
};

/* ---- lives ---- */

static void check_pause(struct contract *contract)
{
    auto_result struct contract_result result = {0}, none = {0};
    struct provider_sandbox sandbox;
    struct error err = {0};

    if (!(contract->features & PROVIDER_PAUSE)) {
        contract_skip("no pause");
        return;
    }
    MUST_OK(contract_sh(contract, "echo kept > /tmp/kept", &none, &err), err);
    MUST_OK(provider_pause(contract->provider, &contract->ref, &err), err);
    MUST_OK(provider_pause(contract->provider, &contract->ref, &err), err);
    MUST_OK(provider_get(contract->provider, &contract->ref, &contract->arena, &sandbox, &err),
            err);
    MUST_INT(sandbox.state, PROVIDER_PAUSED);
    if (contract->features & PROVIDER_FIND) {
        struct pair label = {STR("quicksand.contract"), str_of(contract->key)};
        struct provider_sandbox *found;
        size_t count;

        MUST_OK(provider_find(contract->provider,
                              &(struct provider_query){
                                  .team_id = contract->team_id, .labels = &label, .label_count = 1},
                              &contract->arena, &found, &count, &err),
                err);
        MUST_INT(count, 1);
        MUST_INT(found[0].state, PROVIDER_PAUSED);
    }
    {
        auto_result struct contract_result refused = {0};

        MUST_FAIL(contract_sh(contract, "true", &refused, &err), err, ERROR_CONFLICT);
    }
    err = (struct error){0};
    MUST_OK(
        provider_connect(contract->provider, &contract->ref, 600, &contract->arena, &sandbox, &err),
        err);
    MUST_INT(sandbox.state, PROVIDER_RUNNING);
    MUST_OK(contract_sh(contract, "cat /tmp/kept", &result, &err), err);
    MUST_STR(buf_str(&result.out), "kept\n");
}

static void check_snapshot(struct contract *contract)
{
    auto_result struct contract_result result = {0}, none = {0};
    auto_free char *name = xasprintf("contract-%s", contract->key);
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL, .ttl_s = 600};
    struct provider_ref original = contract->ref, copy;
    struct error err = {0};
    int ran;

    if (!(contract->features & PROVIDER_SNAPSHOT)) {
        contract_skip("no snapshots");
        return;
    }
    /* Not in /tmp, which a provider may keep in memory. */
    MUST_OK(contract_sh(contract, "echo snapped > /var/tmp/snapped", &none, &err), err);
    MUST_OK(provider_snapshot(contract->provider, &contract->ref, name, &contract->arena,
                              &spec.snapshot, &err),
            err);
    MUST(spec.snapshot.len > 0 && provider_caps(contract->provider)->snapshot_kind);
    MUST_OK(contract_create(contract, &spec, &copy, &err), err);
    MUST(!str_eq(copy.id, original.id));
    contract->ref = copy;
    ran = contract_sh(contract, "cat /var/tmp/snapped", &result, &err);
    contract->ref = original;
    MUST_OK(ran, err);
    MUST_STR(buf_str(&result.out), "snapped\n");
    MUST_OK(provider_kill(contract->provider, &copy, &err), err);
    MUST_OK(provider_snapshot_delete(contract->provider, contract->team_id, spec.snapshot, &err),
            err);
    MUST_OK(provider_snapshot_delete(contract->provider, contract->team_id, spec.snapshot, &err),
            err);
}

static void check_address(struct contract *contract)
{
    struct provider_address address;
    struct error err = {0};

    if (!(contract->features & PROVIDER_PORTS)) {
        MUST_FAIL(provider_address(contract->provider, &contract->ref, 8080, &contract->arena,
                                   &address, &err),
                  err, ERROR_UNSUPPORTED);
        return;
    }
    MUST_OK(provider_address(contract->provider, &contract->ref, 8080, &contract->arena, &address,
                             &err),
            err);
    MUST(str_starts(address.url, STR("http")));
    MUST(str_starts(address.local_url, STR("http")));
}

static void check_kill(struct contract *contract)
{
    auto_result struct contract_result none = {0}, refused = {0};
    struct provider_sandbox sandbox;
    struct error err = {0};
    bool exec = contract->features & PROVIDER_EXEC;

    if (exec)
        MUST_OK(contract_sh(contract, "(setsid sleep 4321 >/dev/null 2>&1 &) ; echo", &none, &err),
                err);
    MUST_OK(provider_kill(contract->provider, &contract->ref, &err), err);
    MUST_OK(provider_kill(contract->provider, &contract->ref, &err), err);
    MUST_FAIL(provider_get(contract->provider, &contract->ref, &contract->arena, &sandbox, &err),
              err, ERROR_NOT_FOUND);
    if (exec)
        MUST_FAIL(contract_sh(contract, "true", &refused, &err), err, ERROR_NOT_FOUND);
    if (contract->features & PROVIDER_FIND) {
        struct pair label = {STR("quicksand.contract"), str_of(contract->key)};
        struct provider_sandbox *found;
        size_t count;

        err = (struct error){0};
        MUST_OK(provider_find(contract->provider,
                              &(struct provider_query){
                                  .team_id = contract->team_id, .labels = &label, .label_count = 1},
                              &contract->arena, &found, &count, &err),
                err);
        MUST_INT(count, 0);
    }
}

const struct contract_check contract_life_checks[] = {
    {"pause and connect keep files", check_pause},
    {"snapshot and restore", check_snapshot},
    {"endpoint", check_address},
    {"kill, twice", check_kill},
    {0},
};
