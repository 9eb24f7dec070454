/* Names of images: "ubuntu:22.04", "ghcr.io/a/b@sha256:…". */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

enum {
    REFERENCE_HOST_SIZE = 256,
    REFERENCE_REPOSITORY_SIZE = 256,
    REFERENCE_TAG_SIZE = 129,
    DIGEST_SIZE = 72, /* "sha256:", 64 digits and a NUL */
};

struct reference {
    char host[REFERENCE_HOST_SIZE]; /* with its port; "docker.io" when none is named */
    char repository[REFERENCE_REPOSITORY_SIZE];
    char tag
        [REFERENCE_TAG_SIZE]; /* "latest" when there is neither tag nor digest; "" with a digest alone */
    char digest[DIGEST_SIZE]; /* "" = none; it counts, not the tag */
};

/* ERROR_INVALID, naming what is wrong. */
int reference_parse(struct str text, struct reference *out, struct error *err);
/* The whole name, for people and as a name of the thing. */
void reference_format(const struct reference *reference, char *out, size_t size);

/* "sha256:" and 64 lower-case hex digits. */
bool digest_ok(struct str text);
