/* Whatever a row says: the mask is a host that ends no header, ports are ports, and what was read is written so that it
 * reads the same. */
#include <stdlib.h>

#include "domain/route/ingress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ingress ingress, again;
    char text[INGRESS_TEXT_SIZE], mask[INGRESS_MASK_SIZE];

    ingress_read(str_n(data, size), &ingress);
    ingress_mask(&ingress, UINT16_MAX, mask);
    if (strpbrk(mask, " \r\n\t,/$") || strlen(mask) > strlen(ingress.mask))
        abort();
    for (size_t i = 0; i < ingress.https_count; i++) {
        if (!ingress.https_ports[i])
            abort();
    }
    ingress_write(&ingress, text);
    ingress_read(str_of(text), &again);
    if (strcmp(ingress.mask, again.mask) != 0 || ingress.https_count != again.https_count ||
        memcmp(ingress.https_ports, again.https_ports,
               ingress.https_count * sizeof(ingress.https_ports[0])) != 0)
        abort();
    return 0;
}
