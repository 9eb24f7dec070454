#include "agent/agent_settings_internal.h"

void loader_execution(struct loader *loader)
{
    (void)loader;
}
