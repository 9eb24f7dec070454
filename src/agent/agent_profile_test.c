#include "agent/agent_core_env.h"
