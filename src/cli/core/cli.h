/* What a server and the command line agree on. */
#pragma once

/* In the home of whoever starts a server: written when it makes its first key. */
#define CLI_CREDENTIALS ".quicksand/credentials"
