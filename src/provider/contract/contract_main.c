/* provider_contract '{"type":"docker", ...}': the contract on the provider of this record. */
#include <signal.h>
#include <stdio.h>

#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "provider/contract/contract.h"

int main(int argc, char **argv)
{
    json_t *record = NULL;
    struct error err = {0};
    struct fetch *fetch;
    int r;

    (void)signal(SIGPIPE, SIG_IGN);
    if (argc != 2 || json_parse(str_of(argv[1]), &record, &err) < 0) {
        (void)fprintf(stderr, "usage: provider_contract PROVIDER_JSON\n%s\n", err.message);
        return 2;
    }
    fetch = fetch_new();
    r = contract_try(record, fetch, NULL, STR_NONE);
    fetch_free(fetch);
    json_decref(record);
    return r;
}
