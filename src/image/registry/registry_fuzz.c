/* What a registry sends, and names of images: the first byte says which. */
#include <stddef.h>
#include <stdint.h>

#include "image/registry/challenge.h"
#include "image/registry/manifest.h"
#include "image/registry/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    struct image_settings settings;
    struct challenge challenge;
    struct reference reference;
    struct manifest manifest;
    struct error err;
    struct str rest;

    if (size == 0)
        return 0;
    rest = str_n(data + 1, size - 1);
    switch (data[0]) {
    case 'r':
        if (reference_parse(rest, &reference, &err) == 0) {
            char whole[1024];

            reference_format(&reference, whole, sizeof(whole));
            if (reference_parse(str_of(whole), &reference, &err) < 0)
                __builtin_trap(); /* a whole name is a name */
        }
        break;
    case 'c':
        challenge_parse(rest, &challenge);
        break;
    case 'm':
        (void)manifest_parse(rest, STR("amd64"), &arena, &manifest, &err);
        break;
    default:
        (void)image_settings_parse(rest, STR("amd64"), 1, &arena, &settings, &err);
    }
    return 0;
}
