/* Force-included: functions that have a safer form here are compile errors. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* clang warns when a poisoned name is a macro of the C library, as some are when fortified. */
#ifndef __clang__
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll gets \
    system popen mktemp tmpnam
#endif
