/* Stands in for the agent in the warden's tests: does nothing, until it is killed. */
#include <unistd.h>

int main(void)
{
    for (;;)
        (void)pause();
}
