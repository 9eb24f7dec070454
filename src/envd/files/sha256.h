/* SHA-256 (FIPS 180-4). */
#pragma once

#include "base/str.h"

enum { SHA256_SIZE = 32 };

void sha256(struct str message, unsigned char out[SHA256_SIZE]);
