/* The messages of every procedure for clients that speak the binary codec, made from proto/. */
#pragma once

#include "base/str.h"
#include "protocol/rpc/connect.h"

/* By the request's path; NULL when proto/ has no such procedure. */
const struct connect_method *codec_find(struct str path);
