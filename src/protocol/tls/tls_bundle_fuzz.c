/* Files of certificates and keys: read whole or refused with a reason. */
#include <stdlib.h>

#include "protocol/tls/tls_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tls_bundle *bundle = NULL;
    struct error err = {0};
    struct buf told;

    if (tls_bundle_parse(str_n(data, size), &bundle, &err) < 0) {
        if (!err.message[0])
            abort();
        return 0;
    }
    buf_init(&told, 100000);
    tls_bundle_tell(bundle, &told);
    buf_done(&told);
    tls_bundle_free(bundle);
    return 0;
}
