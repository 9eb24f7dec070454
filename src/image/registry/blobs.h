/* Blobs of images as they came, each once, in files named by their digest; what is not whole yet is beside them as ".partial",
 * one for each registry, and goes on where it ended. Those that somebody was given for a password are that owner's alone: who knows a digest does not have
 * what it is of. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"
#include "image/registry/manifest.h"

enum { SHA256_HEX_SIZE = 65, BLOB_OWNER_LEN = 16 };

struct blobs;

/* Makes the directory. */
int blobs_open(const char *directory, struct blobs **out, struct error *err);
void blobs_close(struct blobs *blobs); /* NULL is fine */

bool blobs_has(const struct blobs *blobs, const struct descriptor *blob);
/* A hard link at the path; the blob counts as used now. */
int blobs_link(const struct blobs *blobs, const struct descriptor *blob, const char *path,
               struct error *err);
/* Removes what was not used for so long, and of the rest the longest unused while they are more than max_bytes, or more than a
 * quarter of the space that they and the file system's free blocks are. What somebody has a link to stays. */
void blobs_prune(const struct blobs *blobs, int64_t max_age_s, int64_t max_bytes);

struct blob_writer {
    const struct blobs *blobs;
    struct descriptor blob;
    int fd;
    int64_t at; /* so much of it is there */
    void *hash;
};

/* 1: it is there, maybe since another thread has ended writing it; 0: out is to be written from out->at on; -1, also when
 * stopped() says so meanwhile. */
int blob_begin(const struct blobs *blobs, const struct descriptor *blob, bool (*stopped)(void *arg),
               void *arg, struct blob_writer *out, struct error *err);
int blob_write(struct blob_writer *writer, const void *p, size_t len, struct error *err);
int blob_restart(struct blob_writer *writer, struct error *err); /* from the beginning */
/* It is whole: checked, and there from now on. When it is not what its digest says, nothing is left: ERROR_INVALID. */
int blob_finish(struct blob_writer *writer, struct error *err);
void blob_leave(
    struct blob_writer *writer); /* in any case, last; what is there stays for the next time */

void sha256_hex(struct str bytes, char out[SHA256_HEX_SIZE]);
/* Whether the bytes are those of a digest "sha256:…". */
bool digest_is_of(struct str digest, struct str bytes);
